//! The manifests for installation with kubectl, rendered from the Helm chart.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::helm::Helm;

/// The chart of the control plane with its default values, for a namespace.
///
/// # Errors
/// If Helm is missing, or it cannot render the chart.
pub fn manifest(chart: &Path, namespace: &str) -> Result<String> {
    let objects = Helm::find()?.template(chart, "navarch", namespace, &json!({}))?;
    Ok(format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {namespace}\n  labels:\n    app.kubernetes.io/part-of: navarch\n{objects}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_manifests_are_the_chart_with_its_defaults() {
        let deploy = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy"));
        let rendered = manifest(&deploy.join("charts/navarch"), "istio-system").unwrap();
        let committed = deploy.join("navarch.yaml");
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&committed, &rendered).unwrap();
        }
        let now = std::fs::read_to_string(committed).unwrap_or_default();
        assert!(
            now == rendered,
            "out of date; run: REWRITE=1 cargo test -p navarch-testkit chart"
        );
    }

    #[test]
    fn the_image_matches_the_deployment() {
        let deploy = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy"));
        let image = std::fs::read_to_string(deploy.join("Containerfile")).unwrap();
        let steps: Vec<(&str, &str)> = image
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(' '))
            .collect();

        // Only what comes after the last FROM is in the image.
        let last = steps.iter().rposition(|(step, _)| *step == "FROM").unwrap();
        let all = |wanted: &str| -> Vec<&str> {
            steps[last..]
                .iter()
                .filter(|(step, _)| *step == wanted)
                .map(|(_, rest)| *rest)
                .collect()
        };

        assert_eq!(
            all("FROM"),
            ["scratch"],
            "the image has no shell and no libraries, so the program must be static"
        );
        assert_eq!(all("RUN"), [""; 0], "the image has no shell to run it");
        assert_eq!(all("ENTRYPOINT"), [r#"["/navarch"]"#]);
        let deployment =
            std::fs::read_to_string(deploy.join("charts/navarch/templates/deployment.yaml"))
                .unwrap();

        let [user] = all("USER")[..] else {
            panic!("one user")
        };

        let (user, group) = user.split_once(':').unwrap();

        for wanted in [
            format!("runAsUser: {user}"),
            format!("runAsGroup: {group}"),
            "runAsNonRoot: true".to_owned(),
            "readOnlyRootFilesystem: true".to_owned(),
            "allowPrivilegeEscalation: false".to_owned(),
        ] {
            assert!(deployment.contains(&wanted), "{wanted}");
        }

        let ports: std::collections::BTreeSet<&str> = all("EXPOSE")
            .iter()
            .flat_map(|ports| ports.split(' '))
            .collect();
        let opened = deployment
            .lines()
            .filter_map(|line| line.trim().strip_prefix("containerPort: "));
        assert_eq!(ports, opened.collect());

        for copied in all("COPY") {
            assert!(
                copied.starts_with("--from=build "),
                "{copied}: the image must contain only built files of the checkout"
            );
        }
    }
}
