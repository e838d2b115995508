//! A company's authority signs for pods with sidecars, a machine and a real ztunnel, whose
//! certificates are renewed under traffic. Its key is in a PKCS#11 token.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use navarch_testkit::istio;
use navarch_testkit::pkcs11::Token;
use navarch_testkit::wait::{until, until_some};
use navarch_tests::chain::check_chain;
use serde_json::{Value, json};

use crate::ambient::{identity, members, without_lost_requests};
use crate::node::Node;
use crate::pod::PodKind;
use crate::world::World;
use crate::{machine, missing};

/// The lifetime of certificates: they are renewed after half of it.
const LIFETIME: Duration = Duration::from_secs(20);
/// A pod with such certificates.
const SHORT: PodKind = PodKind::Sidecar {
    capture: &[],
    lifetime: "20s",
};
/// How long requests are sent: every certificate is renewed twice.
const LOAD: Duration = Duration::from_secs(30);

/// A token whose plugin listens; `None` if the test cannot run here.
fn token() -> Result<Option<Token>> {
    if let Some(why) = missing() {
        navarch_testkit::skip::skip(&why);
        return Ok(None);
    }
    let Some(mut token) = Token::new(Path::new(env!("CARGO_BIN_EXE_navarch")))? else {
        return Ok(None);
    };
    token.start()?;
    Ok(Some(token))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_company_signs_for_sidecars_and_machines() -> Result<()> {
    let Some(token) = token()? else {
        return Ok(());
    };
    let socket = token.socket().display().to_string();
    let mut world = World::start_with(&[
        ("EXTERNAL_CA", "NAVARCH_RA_SOCKET"),
        ("NAVARCH_SIGNER_SOCKET", &socket),
    ])
    .await?;
    for object in machine::objects() {
        world.writer().put(&object).await?;
    }

    let client = world.pod("client", SHORT).await?;
    let web = world.pod("web", SHORT).await?;
    let machine = world.machine(machine::launch).await?;
    for pod in [&client, &web, &machine] {
        pod.wait_ready().await?;
    }

    let chain = until_some("the machine has a certificate", async || {
        std::fs::read_to_string(world.folder().join("machine/etc/certs/cert-chain.pem"))
    })
    .await;
    check_chain(&[chain], &identity("machine"), &token.root()?)?;
    until("the machine calls the service", async || {
        let answer = machine.get("web.shop", "/open").await.unwrap_or_default();
        let body = answer["body"].as_str().unwrap_or_default();
        answer["status"] == 200 && body.contains("sa/machine")
    })
    .await;

    let before = [client.certificate().await?, web.certificate().await?];
    let order =
        json!({"op": "load", "host": "web.shop", "path": "/open", "millis": LOAD.as_millis()});
    let outcome = client.app(&order).await?;
    let is_whole = outcome["ok"].as_u64() > Some(100) && outcome["failed"] == 0;
    ensure!(
        is_whole,
        "requests were lost: {outcome}\n{}",
        world.output()
    );
    println!("requests: {outcome}");
    for (pod, before) in [&client, &web].into_iter().zip(before) {
        let now = pod.certificate().await?;
        ensure!(now.serial != before.serial, "it was renewed: {now:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_company_signs_for_a_real_ztunnel() -> Result<()> {
    let Some(program) = istio::ztunnel() else {
        navarch_testkit::skip::skip_test("NAVARCH_ZTUNNEL is not set to a built ztunnel");
        return Ok(());
    };
    let Some(token) = token()? else {
        return Ok(());
    };
    let socket = token.socket().display().to_string();
    let variables = [
        ("EXTERNAL_CA", "NAVARCH_RA_SOCKET"),
        ("NAVARCH_SIGNER_SOCKET", &socket),
    ];
    let node = Node::start_with(program, &variables, Some(LIFETIME)).await?;
    node.wait_served("client", true, "at first").await;

    let root = token.root()?;
    let before = serials(&node, &root).await?;
    without_lost_requests(&node, LOAD, async {
        until("every certificate is renewed", async || {
            let now = serials(&node, &root).await.unwrap_or_default();
            now.len() == before.len() && now.iter().all(|serial| !before.contains(serial))
        })
        .await;
        Ok(())
    })
    .await
}

/// The serial numbers of ztunnel's certificates, whose chains end in the root.
async fn serials(node: &Node, root: &str) -> Result<Vec<String>> {
    let config = node.ztunnel.config().await?;
    let mut serials = Vec::new();
    for account in ["client", "web"] {
        let identity = identity(account);
        let mut all = members(&config["certificates"]).into_iter();
        let own = all
            .find(|one| one["identity"] == identity && one["state"] == "Available")
            .with_context(|| format!("no certificate of {account}: {config:#}"))?;

        let chain: Vec<String> = members(&own["certChain"])
            .into_iter()
            .map(pem)
            .collect::<Result<_>>()?;
        check_chain(&chain, &identity, root)?;
        let serial = own["certChain"][0]["serialNumber"].as_str();
        serials.push(serial.context("a serial number")?.to_owned());
    }
    Ok(serials)
}

/// A certificate in PEM as ztunnel shows it: in base64 once more.
fn pem(certificate: &Value) -> Result<String> {
    let encoded = certificate["pem"].as_str().context("a certificate")?;
    Ok(String::from_utf8(STANDARD.decode(encoded)?)?)
}
