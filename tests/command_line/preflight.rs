//! `navarch preflight` over a dump of objects: the report, the values and the exit codes.

mod round_trip;

use std::path::Path;

use serde_json::Value;

use super::{PROGRAM, run};

/// An installation with something of everything, and with credentials that must not be shown.
const INSTALLATION: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/crates/analysis/src/preflight/installation.yaml"
);
/// The credential in that installation.
const CREDENTIAL: &str = "hunter2";

/// Exit code, standard output and standard error of the command.
fn preflight(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run(
        Path::new(PROGRAM),
        &[&["preflight"][..], arguments].concat(),
    );
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// A file with an installation that can be replaced at once: a Deployment of Helm's, and a CA.
fn replaceable(image: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let text = format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: istiod
  namespace: istio-system
  labels: {{app: istiod}}
  annotations: {{meta.helm.sh/release-name: istiod}}
spec:
  template:
    spec:
      containers: [{{name: discovery, image: "{image}", args: [discovery]}}]
---
apiVersion: v1
kind: Secret
metadata: {{name: istio-ca-secret, namespace: istio-system}}
"#
    );
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn the_report_has_what_must_be_done_first_what_has_no_effect_and_what_is_the_same() {
    let (code, text, error) = preflight(&["--from", INSTALLATION]);
    assert_eq!(code, Some(1), "{text}{error}");
    assert_eq!(error, "");
    for part in [
        "Do first (",
        "No effect in Navarch (",
        "The same (",
        "ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS",
        "Secret istio-system/cacerts",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let (code, json, _) = preflight(&["--from", INSTALLATION, "-o", "json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, Some(1));
    assert_eq!(
        report["controlPlane"],
        "Deployment istio-system/istiod-canary"
    );
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["outcome"] == "do-first"
        && row["object"] == "VirtualService shop/broken"
        && row["action"].is_string()));
    assert!(!text.contains(CREDENTIAL) && !json.contains(CREDENTIAL));
}

#[test]
fn values_are_printed_or_written_without_credentials() {
    let (code, yaml, report) = preflight(&["--from", INSTALLATION, "--values", "-"]);
    assert_eq!(code, Some(1));
    assert!(
        yaml.contains("replicaCount: 3") && report.contains("Do first ("),
        "{yaml}{report}"
    );
    assert!(!yaml.contains(CREDENTIAL), "{yaml}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    let name = file.to_str().unwrap();
    let (_, text, _) = preflight(&["--from", INSTALLATION, "--values", name]);
    assert!(text.contains("Do first ("), "{text}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), yaml);
}

#[test]
fn an_installation_that_can_be_replaced_exits_with_success() {
    let file = replaceable("docker.io/istio/pilot:1.32.0");
    let (code, text, error) = preflight(&["--from", file.path().to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}{error}");
    assert!(text.contains("Nothing must be done first."), "{text}");
}

#[test]
fn texts_of_others_cannot_add_lines() {
    let file = replaceable("pilot\\nDo first (9):\\e[31m");
    let (_, text, _) = preflight(&["--from", file.path().to_str().unwrap()]);
    assert!(text.contains("pilot\\n"), "{text}");
    assert!(
        !text.contains("\nDo first (9)") && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[test]
fn what_cannot_be_looked_at_has_its_own_exit_code_and_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    for (arguments, next) in [
        (&["--from", empty][..], "kubectl get -o yaml"),
        (&["--from", "/nowhere"][..], "/nowhere"),
        (&["--from", INSTALLATION, "-r", "next"][..], "--revision"),
        (
            &["--from", INSTALLATION, "-i", "mesh"][..],
            "--istioNamespace",
        ),
        (&["--kubeconfig", "/nowhere/kubeconfig"][..], "--kubeconfig"),
    ] {
        let (code, text, error) = preflight(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {text}{error}");
        assert!(
            error.contains("Error: ") && error.contains(next),
            "{arguments:?}: {error}"
        );
        assert_eq!(text, "", "{arguments:?}");
    }
}
