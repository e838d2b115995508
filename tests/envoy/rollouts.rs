//! Staged rollouts to a real Envoy: accepted changes advance, rejected ones are rolled back
//! automatically.

use anyhow::{Result, ensure};
use navarch_testkit::envoy::AdsProtocol;
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wait::{Verbatim, until_some};
use serde_json::Value;

use super::ONE_AT_A_TIME;
use super::quarantine::{answered, filter, lua, open, quarantined};

/// Waits until the rollouts meet a condition.
async fn wait_for_rollouts(
    navarch: &Navarch,
    what: &str,
    is_so: impl Fn(&[Value]) -> bool,
) -> Vec<Value> {
    until_some(what, async || {
        let page = navarch.page("/debug/rollout").await.unwrap_or_default();
        let page: Value = serde_json::from_str(&page).unwrap_or_default();
        let all = page["rollouts"].as_array().cloned().unwrap_or_default();
        if is_so(&all) {
            Ok(all)
        } else {
            Err((all, Verbatim(navarch.output())))
        }
    })
    .await
}

/// An object with the annotations of a rollout.
fn staged(object: &str, pause: &str) -> String {
    let annotations = format!(
        "annotations: {{navarch.io/rollout: '10%,100%', navarch.io/rollout-pause: {pause}}}, name:"
    );
    object.replacen("name:", &annotations, 1)
}

#[tokio::test]
async fn an_envoy_keeps_accepted_changes_and_reverts_rejected_ones() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;

    for protocol in [AdsProtocol::Delta, AdsProtocol::StateOfTheWorld] {
        let (shop, navarch, sidecar) = open(protocol).await?;

        // The only proxy of its workload is in the first stage. It rejects the filter, and gets the
        // previous version again.
        let unknown = "{'@type': type.googleapis.com/xds.type.v3.TypedStruct, type_url: type.googleapis.com/no.such.Filter, value: {}}";
        shop.write(
            "filter.yaml",
            &staged(&filter("no-such-filter", unknown), "1h"),
        )?;
        let is_stopped = |all: &[Value]| all.iter().any(|one| one["state"] == "stopped");
        let all = wait_for_rollouts(&navarch, "stopped", is_stopped).await;
        let reason = all[0]["reason"].as_str().unwrap_or_default();

        ensure!(
            reason.contains("rejected lds") && reason.contains("no.such.Filter"),
            "{reason}"
        );
        ensure!(
            quarantined(&navarch).await?.is_empty(),
            "no object is quarantined"
        );

        // Other changes still reach it.
        shop.edit("reviews-routing.yaml", "weight: 100", "weight: 0")?;
        shop.edit(
            "reviews-routing.yaml",
            "weight: 0\n      retries",
            "weight: 100\n      retries",
        )?;
        answered("reviews v2").await;

        ensure!(quarantined(&navarch).await?.is_empty(), "nor later");

        // The corrected object passes both stages.
        shop.write(
            "filter.yaml",
            &staged(
                &filter("fine", &lua("function envoy_on_request(h) end")),
                "0s",
            ),
        )?;

        wait_for_rollouts(&navarch, "complete", <[Value]>::is_empty).await;
        let config = sidecar.config_dump().await?.to_string();
        ensure!(
            config.contains("\"fine\"") && !config.contains("no-such-filter"),
            "the corrected script is in force"
        );

        // A route in stages: requests follow it, and return to the previous route when the rollout
        // is aborted.
        let rule = std::fs::read_to_string(shop.file("reviews-routing.yaml"))?;
        let (head, rule) = rule.split_at(rule.find("kind: VirtualService").unwrap_or_default());
        let with = "  name: reviews\n  annotations: {navarch.io/rollout: '10%,100%', navarch.io/rollout-pause: 1h}\n";
        let back =
            rule.replacen("  name: reviews\n", with, 1)
                .replacen("weight: 0\n", "weight: 50\n", 1);
        let back = back.replacen("weight: 100\n", "weight: 0\n", 1).replacen(
            "weight: 50\n",
            "weight: 100\n",
            1,
        );
        shop.write("reviews-routing.yaml", &format!("{head}{back}"))?;

        answered("reviews v1").await;
        let all = wait_for_rollouts(&navarch, "taken", |all| {
            all.iter().any(|one| one["taken"] == 1)
        })
        .await;
        ensure!(
            all[0]["stage"] == 1 && all[0]["state"] == "rolling",
            "{all:?}"
        );

        let name = "VirtualService/bookshop/reviews";
        let order = format!("{{\"object\":\"{name}\",\"order\":\"abort\"}}");
        let url = format!("http://{}/debug/rollout", navarch.monitoring);
        let mut curl = tokio::process::Command::new("curl");
        curl.args([
            "-sf",
            "-H",
            "content-type: application/json",
            "-d",
            &order,
            &url,
        ]);

        ensure!(curl.status().await?.success(), "the command succeeds");
        answered("reviews v2").await;
    }

    Ok(())
}
