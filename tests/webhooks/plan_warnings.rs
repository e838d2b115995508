//! Warnings about the effects of a change, returned to the user who makes it
//! (`NAVARCH_PLAN_WARNINGS`, `global.istiod.planWarnings`).

use std::path::Path;

use navarch_testkit::client;
use navarch_testkit::helm::Helm;
use navarch_testkit::wait::until;
use regex::Regex;
use serde_json::{Value, json};

use crate::configuration::{broken, object};
use crate::installed::{Installed, NAMESPACE};

/// The chart's configuration of the warning webhook, with a port of this machine.
fn configuration(port: u16) -> String {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/charts/navarch");
    let values = json!({ "global": { "istiod": { "planWarnings": true } } });
    let all = Helm::find()
        .unwrap()
        .template(&chart, "navarch", NAMESPACE, &values)
        .unwrap();
    let one = all
        .split("\n---")
        .find(|document| document.contains("name: plan.warnings.navarch.io"))
        .unwrap();

    let service = Regex::new(
        r"service:\n +name: istiod\n +namespace: istio-system\n +path: (/\w+)\n +port: 443",
    )
    .unwrap();
    let text = service.replace(one, format!("url: https://localhost:{port}$1"));
    assert!(
        text.contains(&format!("url: https://localhost:{port}/plan")),
        "{text}"
    );

    text.into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_warnings_report_the_effect_of_a_change() {
    let installed = Installed::start(&[]).await;
    let mut navarch = installed
        .launch_with(
            "istiod-1",
            installed.port,
            &[("NAVARCH_PLAN_WARNINGS", "true")],
        )
        .await;

    navarch.wait_ready().await.unwrap();
    let root = installed.authority.root();
    until("validation is in force", || installed.is_registered(&root)).await;
    let output = installed.kubectl(&["apply", "-f", "-"], &configuration(installed.port));
    assert!(output.succeeded, "{output:?}");
    let hook = || async {
        installed
            .webhooks("validating", "navarch-plan-istio-system")
            .await
            .pop()
            .unwrap_or_default()
    };

    until("it has its roots", || async {
        hook().await["clientConfig"]["caBundle"].is_string()
    })
    .await;
    assert_eq!(hook().await["failurePolicy"], "Ignore", "it never rejects");

    let spec = |weight: u32| {
        json!({ "hosts": ["a"], "http": [{ "route": [
            { "destination": { "host": "a" }, "weight": weight }, { "destination": { "host": "b" }, "weight": 100 - weight },
        ] }] })
    };
    let nobody = "Warning: plan: none of 0 proxies connected to this replica receives changes";
    until("a dry run is warned of", || async {
        installed
            .try_out(&object("VirtualService", "a", &spec(1)))
            .text
            .contains(nobody)
    })
    .await;
    let is_warned = |object: &Value| {
        let output = installed.apply(object);
        assert!(output.succeeded, "{output:?}");
        output.text.contains(nobody)
    };
    assert!(is_warned(&object("VirtualService", "a", &spec(1))));
    until("it is read", || async {
        installed
            .kubectl(&["label", "--overwrite", "virtualservice", "a", "x=y"], "")
            .text
            .contains("labeled")
    })
    .await;
    assert!(is_warned(&object("VirtualService", "a", &spec(2))));

    // Errors come from the validation webhook only, not twice.
    let output = installed.apply(&broken("broken"));
    assert!(
        !output.succeeded && !output.text.contains("plan:"),
        "{output:?}"
    );
    let removed = || async {
        installed
            .kubectl(&["delete", "--dry-run=server", "virtualservice", "a"], "")
            .text
            .contains(nobody)
    };

    until("the effect of a deletion is a warning", removed).await;

    let metrics = client::get(navarch.monitoring, "localhost", "/metrics", &[])
        .await
        .unwrap()
        .body;
    assert!(
        metrics.contains("navarch_plan_warnings_total{outcome=\"told\"}"),
        "{metrics}"
    );

    navarch.stop().await.unwrap();

    // Without Navarch there are no warnings; only the validation webhook rejects.
    assert!(
        installed
            .kubectl(&["delete", "virtualservice", "a"], "")
            .succeeded
    );
}
