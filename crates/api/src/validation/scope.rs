//! The scope of an object: selectors and `exportTo`.

use std::collections::{BTreeMap, BTreeSet};

use super::Verdict;
use super::name::is_dns_label;
use super::path::Path;
use crate::istio::{PolicyWorkloadSelector, WorkloadSelector};

/// A selector of ServiceEntry or Sidecar.
pub(super) fn workload_selector(
    verdict: &mut Verdict,
    at: &Path<'_>,
    selector: Option<&WorkloadSelector>,
) {
    if let Some(WorkloadSelector { labels }) = selector {
        selector_labels(verdict, &at.field("labels"), labels);
    }
}

/// A selector of a policy or a DestinationRule.
pub(super) fn policy_selector(
    verdict: &mut Verdict,
    at: &Path<'_>,
    selector: Option<&PolicyWorkloadSelector>,
) {
    if let Some(PolicyWorkloadSelector { match_labels }) = selector {
        selector_labels(verdict, &at.field("matchLabels"), match_labels);
    }
}

fn selector_labels(verdict: &mut Verdict, at: &Path<'_>, labels: &BTreeMap<String, String>) {
    if labels.is_empty() {
        verdict.warn(at, "is empty, so every workload of the namespace is selected; set labels to select only some");
    }

    for (key, value) in labels {
        if key.is_empty() {
            verdict.error(
                &at.field(key),
                "has an empty key; write the name of a label",
            );
        }

        if key.contains('*') || value.contains('*') {
            verdict.error(
                &at.field(key),
                format!(
                    "\"{key}={value}\" has a wildcard; labels are matched as they stand, so write key and value in full"
                ),
            );
        }
    }
}

/// The values that `exportTo` may contain besides namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExportRule {
    Config,
    /// `.` and `*`, and `~` for none.
    Service,
    /// Only the own namespace, since the rule selects workloads.
    OwnNamespace,
}

/// The namespaces that an object is visible in.
pub(super) fn export_to(
    verdict: &mut Verdict,
    at: &Path<'_>,
    entries: &[String],
    namespace: &str,
    rule: ExportRule,
) {
    let mut seen = BTreeSet::new();

    for (index, entry) in entries.iter().enumerate() {
        let at = &at.item(index);
        let meant = if entry == "." { namespace } else { entry };
        if seen.contains(meant) {
            verdict.error(
                at,
                format!("{entry:?} repeats the namespace {meant:?}; list each once"),
            );
            continue;
        }

        let good = match meant {
            "." | "*" => true,
            "~" => rule == ExportRule::Service,
            name => is_dns_label(name),
        };

        if good {
            seen.insert(meant);
        } else if meant == "~" {
            verdict.error(
                at,
                "\"~\" (none) is for services only; write \".\", \"*\" or a namespace",
            );
        } else {
            verdict.error(
                at,
                format!(
                    "{entry:?} is not a namespace; write \".\", \"*\" or the name of a namespace"
                ),
            );
        }
    }

    if rule == ExportRule::OwnNamespace
        && !seen.is_empty()
        && (seen.len() > 1 || !seen.contains(namespace))
    {
        verdict
            .error(at, "exports to other namespaces, but workloadSelector is set; write [\".\"] or remove one of them");
    }

    if entries.len() > 1 {
        if seen.contains("*") {
            verdict.error(at, "has entries besides \"*\" (all); write only [\"*\"]");
        }
        if seen.contains("~") {
            verdict.error(at, "has entries besides \"~\" (none); write only [\"~\"]");
        }
    }
}
