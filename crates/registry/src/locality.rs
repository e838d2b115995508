//! Localities from labels of pods, nodes and WorkloadEntries.

use std::borrow::Cow;

use super::model::Labels;

/// The locality label, and its former name.
const LOCALITY_LABELS: [&str; 2] = ["topology.istio.io/locality", "istio-locality"];
/// Kubernetes sets it on nodes; takes precedence over `failure-domain.beta.kubernetes.io/region`.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// Kubernetes sets it on nodes; takes precedence over `failure-domain.beta.kubernetes.io/zone`.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The label of a region, and its former name.
pub(super) const REGION_LABELS: [&str; 2] =
    [REGION_LABEL, "failure-domain.beta.kubernetes.io/region"];
/// The label of a zone, and its former name.
pub(super) const ZONE_LABELS: [&str; 2] = [ZONE_LABEL, "failure-domain.beta.kubernetes.io/zone"];
/// The label of a sub-zone.
pub const SUBZONE_LABEL: &str = "topology.istio.io/subzone";

/// The locality from a workload's own labels, if any. Label values cannot contain `/`, so `.`
/// replaces it.
#[must_use]
pub(super) fn locality_of_labels(labels: &Labels) -> Option<Cow<'_, str>> {
    let value = LOCALITY_LABELS
        .iter()
        .find_map(|label| labels.get(*label))?;
    match &**value {
        "" => None,
        text if text.contains('/') => Some(Cow::Borrowed(text)),
        text => Some(Cow::Owned(text.replace('.', "/"))),
    }
}

/// Region, zone and sub-zone from a proxy's labels of either form; `None` if there are none. Unlike
/// in labels of pods, dots are not replaced.
#[must_use]
pub fn locality_of_proxy(labels: &Labels) -> Option<[&str; 3]> {
    let [[region, _], [zone, _]] = [REGION_LABELS, ZONE_LABELS];
    let parts = [region, zone, SUBZONE_LABEL].map(|label| labels.get(label));
    if parts.iter().any(Option::is_some) {
        return Some(parts.map(|part| part.map_or("", |part| &**part)));
    }
    let whole = LOCALITY_LABELS
        .iter()
        .find_map(|label| labels.get(*label))?;
    (!whole.is_empty()).then(|| split_locality(whole))
}

/// The locality of a node from its labels; empty if there are none.
#[must_use]
pub(super) fn locality_of_node(labels: &Labels) -> String {
    let first = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| labels.get(*name).filter(|value| !value.is_empty()))
            .map_or("", |value| &**value)
    };
    let region = first(&REGION_LABELS);
    let zone = first(&ZONE_LABELS);
    let subzone = first(&[SUBZONE_LABEL]);
    if region.is_empty() && zone.is_empty() && subzone.is_empty() {
        return String::new();
    }
    format!("{region}/{zone}/{subzone}")
}

/// Region, zone and sub-zone of a locality; missing parts are empty, further ones are dropped.
#[must_use]
pub fn split_locality(locality: &str) -> [&str; 3] {
    let mut parts = locality.split('/');
    [(); 3].map(|()| parts.next().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    }

    #[test]
    fn dots_in_locality_labels_become_slashes() {
        assert_eq!(
            locality_of_labels(&labels(&[("istio-locality", "r.z.s")])).as_deref(),
            Some("r/z/s")
        );
        assert_eq!(
            locality_of_labels(&labels(&[("istio-locality", "r/z.1")])).as_deref(),
            Some("r/z.1")
        );
        let both = labels(&[
            ("istio-locality", "old"),
            ("topology.istio.io/locality", "new"),
        ]);
        assert_eq!(locality_of_labels(&both).as_deref(), Some("new"));
    }

    #[test]
    fn proxy_locality_is_read_from_parts_or_one_label() {
        let parts = labels(&[
            ("topology.kubernetes.io/zone", "z"),
            ("istio-locality", "r/y"),
        ]);
        assert_eq!(locality_of_proxy(&parts), Some(["", "z", ""]));
        assert_eq!(
            locality_of_proxy(&labels(&[("istio-locality", "r/z.1/s/t")])),
            Some(["r", "z.1", "s"])
        );
        assert_eq!(
            locality_of_proxy(&labels(&[("app", "web"), ("istio-locality", "")])),
            None
        );
    }

    #[test]
    fn node_labels_set_region_zone_and_subzone() {
        assert_eq!(
            locality_of_node(&labels(&[("topology.kubernetes.io/zone", "z")])),
            "/z/"
        );
        let former = labels(&[
            ("failure-domain.beta.kubernetes.io/region", "r"),
            (SUBZONE_LABEL, "s"),
        ]);
        assert_eq!(locality_of_node(&former), "r//s");
        assert_eq!(locality_of_node(&labels(&[])), "");
    }

    #[test]
    fn localities_have_three_parts() {
        assert_eq!(split_locality("r/z/s/more"), ["r", "z", "s"]);
        assert_eq!(split_locality("r"), ["r", "", ""]);
    }
}
