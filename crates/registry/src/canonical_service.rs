//! The canonical service of a workload in metrics, by its labels (Istio's `pkg/kube/labels`).

use std::sync::Arc;

use super::model::Labels;

/// Takes precedence over `app.kubernetes.io/name` and `app`.
pub const CANONICAL_NAME_LABEL: &str = "service.istio.io/canonical-name";
/// Takes precedence over `app.kubernetes.io/version` and `version`.
pub const CANONICAL_REVISION_LABEL: &str = "service.istio.io/canonical-revision";

/// The canonical name from labels; `None` means the name of the workload.
#[must_use]
pub fn canonical_name(labels: &Labels) -> Option<&Arc<str>> {
    [CANONICAL_NAME_LABEL, "app.kubernetes.io/name", "app"]
        .iter()
        .find_map(|label| labels.get(*label))
}

/// The canonical revision from labels; `None` means `latest`.
#[must_use]
pub fn canonical_revision(labels: &Labels) -> Option<&Arc<str>> {
    [
        CANONICAL_REVISION_LABEL,
        "app.kubernetes.io/version",
        "version",
    ]
    .iter()
    .find_map(|label| labels.get(*label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_label_takes_precedence_over_kubernetes_labels_and_app() {
        let labels = |names: &[&str]| -> Labels {
            names
                .iter()
                .map(|name| ((*name).into(), (*name).into()))
                .collect()
        };

        let all = labels(&["app", "app.kubernetes.io/name", CANONICAL_NAME_LABEL]);
        assert_eq!(
            canonical_name(&all).map(|name| &**name),
            Some(CANONICAL_NAME_LABEL)
        );
        assert_eq!(
            canonical_name(&labels(&["app", "version"])).map(|name| &**name),
            Some("app")
        );

        assert_eq!(
            canonical_revision(&labels(&["app", "version"])).map(|name| &**name),
            Some("version")
        );
        assert_eq!(canonical_revision(&labels(&["app"])), None);
    }
}
