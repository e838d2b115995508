//! An installation of the chart with Helm.

use std::path::{Path, PathBuf};

use navarch_testkit::helm::Helm;
use navarch_testkit::navarch::Navarch;

use crate::{Deployed, NAMESPACE, until};

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/charts/navarch")
}

/// A copy of the chart without `kubeVersion`: API servers built from source do not know their
/// version.
fn chart_for_any_version(folder: &Path) -> PathBuf {
    let copy = folder.join("navarch");
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(chart())
        .arg(&copy)
        .status()
        .unwrap();

    assert!(copied.success());
    let meta = std::fs::read_to_string(copy.join("Chart.yaml")).unwrap();
    let lines: Vec<&str> = meta
        .lines()
        .filter(|line| !line.starts_with("kubeVersion:"))
        .collect();
    assert!(
        lines.len() < meta.lines().count(),
        "the chart has a line `kubeVersion`: {meta}"
    );

    std::fs::write(copy.join("Chart.yaml"), lines.join("\n")).unwrap();
    copy
}

#[tokio::test(flavor = "multi_thread")]
async fn navarch_works_with_an_installation_by_helm() {
    let helm = Helm::find().unwrap();
    let deployed = Deployed::empty().await;
    let folder = tempfile::tempdir().unwrap();
    let chart = chart_for_any_version(folder.path());
    let chart = chart.to_str().unwrap();
    let admin = deployed.cluster.admin_kubeconfig();
    let on_cluster = |args: &[&str]| {
        let mut args = args.to_vec();
        args.extend(["--namespace", NAMESPACE]);
        helm.run(Some(&admin), &args).unwrap()
    };

    let notes = on_cluster(&[
        "install",
        "navarch",
        chart,
        "--create-namespace",
        "--set",
        "revisoin=x",
    ]);

    assert!(
        notes.contains("is installed as istiod in istio-system")
            && notes.contains("WARNING: revisoin:"),
        "{notes}"
    );
    deployed.forget_webhooks();
    let deployment = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/istiod");
    assert_eq!(
        deployed.get(&deployment).await["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "Helm"
    );

    let kubeconfig = deployed
        .cluster
        .kubeconfig_of(NAMESPACE, "istiod")
        .await
        .unwrap();

    let environment = [
        ("POD_NAME", "istiod-0"),
        ("POD_NAMESPACE", NAMESPACE),
        ("PILOT_ENABLE_STATUS", "true"),
    ];
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let arguments = ["--secure-grpc-addr=127.0.0.1:0"];
    let navarch = Navarch::start_on_kubernetes(program, &kubeconfig, &arguments, &environment)
        .await
        .unwrap();

    let map = "/api/v1/namespaces/kube-system/configmaps/istio-ca-root-cert";
    until("it leads and writes its roots", async || {
        deployed.get(map).await["data"].is_object()
    })
    .await;

    // The mesh config in the chart is the one in force.
    assert!(
        navarch
            .page("/debug/mesh")
            .await
            .unwrap()
            .contains("cluster.local")
    );

    // An upgrade changes exactly the values that were set.
    on_cluster(&[
        "upgrade",
        "navarch",
        chart,
        "--set",
        "global.imagePullPolicy=Always",
    ]);

    let container = async || {
        deployed.get(&deployment).await["spec"]["template"]["spec"]["containers"][0].clone()
    };
    assert_eq!(container().await["imagePullPolicy"], "Always");
    deployed.forget_webhooks();
    assert!(navarch.is_ready().await);
    assert!(navarch.stop().await.unwrap(), "navarch exits on SIGTERM");
    assert_eq!(deployed.denied(), Vec::<String>::new());

    on_cluster(&["uninstall", "navarch"]);
    assert!(
        deployed.get(&deployment).await.is_null(),
        "no object is left"
    );
}
