//! An object that a real Envoy rejects is quarantined until it is edited, and all other changes are
//! still applied.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::bookshop::{self, Bookshop};
use navarch_testkit::envoy::{AdsProtocol, Envoy};
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::wait::{Verbatim, until_some};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ONE_AT_A_TIME;
use super::issuer::Issuer;

/// How long an edit may take to have its effects.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An EnvoyFilter that puts an HTTP filter before the router of outbound listeners.
pub(crate) fn filter(name: &str, config: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: {name}, namespace: bookshop}}\n\
         spec: {{configPatches: [{{applyTo: HTTP_FILTER, match: {{context: SIDECAR_OUTBOUND, listener: {{filterChain: \
         {{filter: {{name: envoy.filters.network.http_connection_manager, subFilter: {{name: envoy.filters.http.router}}}}}}}}}}, \
         patch: {{operation: INSERT_BEFORE, value: {{name: {name}, typed_config: {config}}}}}}}]}}\n"
    )
}

/// A script that does nothing.
pub(crate) const SCRIPT: &str = "function envoy_on_request(h) end";

/// The same without its last word.
const UNFINISHED_SCRIPT: &str = "function envoy_on_request(h)";

/// An EnvoyFilter with a script.
fn filter_with(name: &str, script: &str) -> String {
    filter(name, &lua(script))
}

/// A TrafficExtension with a script.
fn extension_with(name: &str, script: &str) -> String {
    format!(
        "apiVersion: extensions.istio.io/v1alpha1\nkind: TrafficExtension\n\
         metadata: {{name: {name}, namespace: bookshop}}\nspec: {{lua: {{inlineCode: '{script}'}}}}\n"
    )
}

/// The configuration of a Lua filter.
pub(crate) fn lua(script: &str) -> String {
    format!(
        "{{'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, inline_code: '{script}'}}"
    )
}

/// The quarantined objects, each with Envoy's error.
pub(crate) async fn quarantined(navarch: &Navarch) -> Result<Vec<(String, String)>> {
    let page: Value = serde_json::from_str(&navarch.page("/debug/push_status").await?)?;
    let all = page["quarantined"].as_array().context("a list")?.clone();
    let text = |one: &Value, member: &str| one[member].as_str().unwrap_or_default().to_owned();
    Ok(all
        .iter()
        .map(|one| (text(one, "object"), text(one, "message")))
        .collect())
}

/// Waits until exactly these objects are quarantined, and returns Envoy's errors.
async fn wait_for(navarch: &Navarch, objects: &[&str]) -> Vec<String> {
    let what = format!("{objects:?} are quarantined");
    let found = until_some(&what, async || {
        let found = quarantined(navarch)
            .await
            .map_err(|error| (format!("{error:#}"), Verbatim(navarch.output())))?;
        let are_these = found
            .iter()
            .map(|(object, _)| object.as_str())
            .eq(objects.iter().copied());
        if are_these {
            Ok(found)
        } else {
            Err((format!("{found:?}"), Verbatim(navarch.output())))
        }
    });
    found.await.into_iter().map(|(_, reason)| reason).collect()
}

/// The pod of the sidecar: only rejections by authenticated proxies count.
const SHOPPER: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: shopper-1, namespace: bookshop, labels: {app: shopper}}\n\
    spec: {serviceAccountName: shopper, containers: [{name: app, image: app}]}\n\
    status: {phase: Running, podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}], conditions: [{type: Ready, status: \"True\"}]}\n";

/// The bookshop with a control plane and a real sidecar; all requests to reviews go to v1.
pub(crate) async fn open(protocol: AdsProtocol) -> Result<(Bookshop, Navarch, Envoy)> {
    let shop = Bookshop::open(Path::new(env!("CARGO_MANIFEST_DIR"))).await?;
    shop.write("shopper.yaml", SHOPPER)?;
    let issuer = Issuer::with_new_key();
    let rule = issuer.rule();
    let variables = [("XDS_AUTH_PLAINTEXT", "true"), ("JWT_RULE", rule.as_str())];
    let navarch = Navarch::start_at(
        Path::new(env!("CARGO_BIN_EXE_navarch")),
        shop.folder(),
        &shop.flags(),
        &variables,
        Addresses::ANY,
    )
    .await?;
    let token = issuer.token(json!({"sub": "system:serviceaccount:bookshop:shopper"}));
    let mut sidecar = bookshop::sidecar_with_token(navarch.xds, protocol, Some(token)).await?;
    sidecar.wait_ready().await?;
    shop.edit("reviews-routing.yaml", "weight: 90", "weight: 100")?;
    shop.edit("reviews-routing.yaml", "weight: 10\n", "weight: 0\n")?;
    answered("reviews v1").await;
    Ok((shop, navarch, sidecar))
}

/// Waits until requests for the reviews get this response.
pub(crate) async fn answered(wanted: &str) {
    bookshop::answered("the sidecar obeys", "reviews", "/", wanted).await;
}

#[tokio::test]
async fn invalid_filters_scripts_and_expressions_are_quarantined_and_other_objects_apply()
-> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;

    for protocol in [AdsProtocol::Delta, AdsProtocol::StateOfTheWorld] {
        let (shop, navarch, sidecar) = open(protocol).await?;

        // A filter that this Envoy does not have. Other edits at the same time must be applied.
        let unknown = "{'@type': type.googleapis.com/xds.type.v3.TypedStruct, type_url: type.googleapis.com/no.such.Filter, value: {}}";
        shop.write("filter.yaml", &filter("no-such-filter", unknown))?;
        let reasons = wait_for(&navarch, &["EnvoyFilter bookshop/no-such-filter"]).await;
        ensure!(
            reasons
                .iter()
                .any(|reason| reason.contains("no.such.Filter")),
            "{reasons:?}"
        );

        shop.edit("reviews-routing.yaml", "weight: 100", "weight: 0")?;
        shop.edit(
            "reviews-routing.yaml",
            "weight: 0\n      retries",
            "weight: 100\n      retries",
        )?;
        answered("reviews v2").await;
        let metrics = navarch.metrics().await?;

        ensure!(
            metrics.contains("navarch_quarantined_objects 1"),
            "{metrics}"
        );
        ensure!(
            navarch.output().contains("quarantined"),
            "{}",
            navarch.output()
        );

        // An edit adds two scripts, one of which fails when it is loaded. Only that one is
        // quarantined.
        let two = [
            filter("fine", &lua(SCRIPT)),
            filter("boom", &lua("error(\"boom\")")),
        ];
        shop.write("filter.yaml", &two.join("---\n"))?;
        let reasons = wait_for(&navarch, &["EnvoyFilter bookshop/boom"]).await;

        ensure!(
            reasons.iter().any(|reason| reason.contains("boom")),
            "{reasons:?}"
        );
        let config = sidecar.config_dump().await?.to_string();
        ensure!(
            config.contains("\"fine\"") && !config.contains("\"boom\""),
            "the valid script is in force"
        );

        answered("reviews v2").await;

        // The next edit ends the quarantine.
        shop.write("filter.yaml", &filter("boom", &lua(SCRIPT)))?;
        wait_for(&navarch, &[]).await;
        wait_until_in_force(&sidecar, "boom").await?;

        syntax_errors_are_charged(&shop, &navarch, &sidecar).await?;
        expressions_are_charged(&shop, &navarch).await?;
    }

    Ok(())
}

/// Waits until the sidecar has this filter.
async fn wait_until_in_force(sidecar: &Envoy, name: &str) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    let name = format!("{name}\"");

    while !sidecar.config_dump().await?.to_string().contains(&name) {
        ensure!(Instant::now() < end, "{name} is in force");
    }

    Ok(())
}

/// A script is not read before Envoy gets it: an EnvoyFilter and a TrafficExtension whose script has a
/// syntax error are quarantined with Envoy's message, until they are corrected.
async fn syntax_errors_are_charged(
    shop: &Bookshop,
    navarch: &Navarch,
    sidecar: &Envoy,
) -> Result<()> {
    let filter: fn(&str, &str) -> String = filter_with;

    for (kind, name, with) in [
        ("EnvoyFilter", "misspelt", filter),
        ("TrafficExtension", "unfinished", extension_with),
    ] {
        shop.write("filter.yaml", &with(name, UNFINISHED_SCRIPT))?;
        let object = format!("{kind} bookshop/{name}");
        let reasons = wait_for(navarch, &[&object]).await;
        ensure!(
            reasons
                .iter()
                .any(|reason| reason.contains("'end' expected")),
            "{reasons:?}"
        );
        answered("reviews v2").await;

        shop.write("filter.yaml", &with(name, SCRIPT))?;
        wait_for(navarch, &[]).await;
        wait_until_in_force(sidecar, name).await?;
    }

    Ok(())
}

/// A regular expression that is too large for this Envoy replaces a valid rule: the valid rule
/// stays in force.
async fn expressions_are_charged(shop: &Bookshop, navarch: &Navarch) -> Result<()> {
    let rule = std::fs::read_to_string(shop.file("reviews-routing.yaml"))?;
    let large = rule.replace(
        "    - name: split\n",
        "    - name: split\n      match: [{uri: {regex: '/[a-z]{1,60}'}}]\n",
    );
    ensure!(large != rule, "{rule}");
    shop.write("reviews-routing.yaml", &large)?;
    let reasons = wait_for(navarch, &["VirtualService bookshop/reviews"]).await;
    ensure!(
        reasons.iter().any(|reason| reason.contains("program size")),
        "{reasons:?}"
    );
    answered("reviews v2").await;
    shop.write("reviews-routing.yaml", &rule)?;
    wait_for(navarch, &[]).await;
    answered("reviews v2").await;
    Ok(())
}

/// An EnvoyFilter whose HTTP filter Envoy asks for by ECDS, and the answer to that.
fn extension_config(script: &str) -> String {
    let discovery = "{name: by-ecds, config_discovery: {config_source: {ads: {}, resource_api_version: V3}, \
        type_urls: [type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua]}}";
    let answer = format!("{{name: by-ecds, typed_config: {}}}", lua(script));
    format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
         metadata: {{name: by-ecds, namespace: bookshop}}\n\
         spec: {{configPatches: [\
         {{applyTo: HTTP_FILTER, match: {{context: SIDECAR_OUTBOUND, listener: {{filterChain: \
         {{filter: {{name: envoy.filters.network.http_connection_manager, subFilter: {{name: envoy.filters.http.router}}}}}}}}}}, \
         patch: {{operation: INSERT_BEFORE, value: {discovery}}}}}, \
         {{applyTo: EXTENSION_CONFIG, match: {{context: SIDECAR_OUTBOUND}}, \
         patch: {{operation: ADD, value: {answer}}}}}]}}\n"
    )
}

#[tokio::test]
async fn a_filter_that_envoy_rejects_by_ecds_is_quarantined_and_its_former_version_serves()
-> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let first = extension_config(
        "function envoy_on_response(h) h:headers():add(\"x-version\", \"one\") end",
    );
    let broken = extension_config("error(\"broken\")");

    for protocol in [AdsProtocol::Delta, AdsProtocol::StateOfTheWorld] {
        let (shop, navarch, sidecar) = open(protocol).await?;
        shop.write("filter.yaml", &first)?;
        configured(&sidecar, "x-version").await;

        shop.write("filter.yaml", &broken)?;
        let reasons = wait_for(&navarch, &["EnvoyFilter bookshop/by-ecds"]).await;
        ensure!(
            reasons.iter().any(|reason| reason.contains("broken")),
            "{reasons:?}"
        );
        configured(&sidecar, "x-version").await;

        // Other objects apply meanwhile.
        shop.edit("reviews-routing.yaml", "weight: 100", "weight: 0")?;
        shop.edit(
            "reviews-routing.yaml",
            "weight: 0\n      retries",
            "weight: 100\n      retries",
        )?;
        answered("reviews v2").await;

        shop.write("filter.yaml", &first.replace("one", "corrected"))?;
        wait_for(&navarch, &[]).await;
        configured(&sidecar, "corrected").await;
    }

    Ok(())
}

/// Waits until Envoy's configuration has a text.
async fn configured(sidecar: &Envoy, text: &str) {
    let what = format!("Envoy has {text}");
    until_some(&what, async || {
        let dump = sidecar
            .config_dump()
            .await
            .map_err(|error| format!("{error:#}"))?
            .to_string();
        if dump.contains(text) {
            Ok(())
        } else {
            Err(dump)
        }
    })
    .await;
}
