//! `navarch doctor` reports rights and kinds that are missing in the API server.

use std::path::Path;
use std::process::Command;

use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};

use crate::whole::start;
use crate::{Deployed, until};

/// The role of deploy/.
const ROLE: &str =
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/istiod-clusterrole-istio-system";

/// The findings: severity, title, suggested command, link.
fn found(navarch: &Navarch) -> Vec<[String; 4]> {
    let address = format!("--address={}", navarch.monitoring);
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_navarch")));
    let output = command
        .args(["doctor", &address, "-o", "json"])
        .env_clear()
        .output()
        .unwrap();
    let all: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let findings = all[0]["health"]["findings"]
        .as_array()
        .cloned()
        .unwrap_or_else(|| panic!("{all}"));
    let one = |finding: &Value| {
        ["level", "what", "next", "docs"].map(|field| finding[field].as_str().unwrap().to_owned())
    };
    findings.iter().map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_names_the_rights_and_kinds_that_are_missing() {
    let deployed = &Deployed::start().await;
    let navarch = start(deployed, "istiod-0").await;
    let of = |section: &str| {
        let all = found(&navarch).into_iter();
        all.filter(|[.., docs]| docs.ends_with(section))
            .collect::<Vec<_>>()
    };

    assert_eq!(
        of("#rights"),
        Vec::<[String; 4]>::new(),
        "deploy/ grants all required rights"
    );
    let kinds = of("#kinds-and-their-versions");
    assert!(
        kinds
            .iter()
            .all(|[level, what, ..]| level == "note" && what.contains("gateway.networking.k8s.io")),
        "{kinds:?}"
    );

    assert_eq!(
        of("#clocks"),
        Vec::<[String; 4]>::new(),
        "both clocks are the same machine's"
    );

    // Revoke the rights to read pods and to review tokens.
    let mut role = deployed.get(ROLE).await;
    for rule in role["rules"].as_array_mut().unwrap() {
        if let Some(resources) = rule["resources"].as_array_mut() {
            resources.retain(|resource| resource != "pods" && resource != "tokenreviews");
        }
    }

    role["rules"]
        .as_array_mut()
        .unwrap()
        .retain(|rule| rule["resources"] != json!([]));
    deployed
        .cluster
        .call("PUT", ROLE, "application/json", &role)
        .await
        .unwrap();

    deployed
        .cluster
        .kubectl(&["delete", "crd", "wasmplugins.extensions.istio.io"], "")
        .unwrap();
    let who = "system:serviceaccount:istio-system:istiod";
    until("the rights are missed", async || {
        tokio::task::block_in_place(|| of("#rights")).len() == 2
    })
    .await;
    let rights = of("#rights");
    let [_, what, next, _] = &rights[0];
    assert_eq!(
        *what,
        format!("{who} may not list, watch pods: objects of this kind are not read")
    );
    assert_eq!(*next, format!("kubectl auth can-i list pods -A --as={who}"));

    let [level, what, ..] = &rights[1];
    let wanted = format!(
        "{who} may not create tokenreviews.authentication.k8s.io: proxies cannot authenticate with tokens"
    );
    assert_eq!((level.as_str(), what), ("wrong", &wanted));
    let verdict = deployed.cluster.kubectl(
        &[
            "auth",
            "can-i",
            "list",
            "pods",
            "-A",
            &format!("--as={who}"),
        ],
        "",
    );

    assert!(
        verdict.is_err(),
        "the suggested command gives the same result: {verdict:?}"
    );
    until("the missing kind is reported", async || {
        let kinds = tokio::task::block_in_place(|| of("#kinds-and-their-versions"));
        kinds.iter().any(|[_, what, next, _]| {
            what.contains("wasmplugins.extensions.istio.io")
                && next == "navarch crds | kubectl apply -f -"
        })
    })
    .await;
    assert!(navarch.stop().await.unwrap());
}
