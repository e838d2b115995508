//! Which endpoints a service prefers: from its field, its annotation, or its namespace's
//! annotation.

use super::model::TrafficDistribution;
use navarch_api::kubernetes::TrafficDistribution as Declared;
use navarch_api::object::ObjectMeta;

/// The annotation of services and namespaces.
const ANNOTATION: &str = "networking.istio.io/traffic-distribution";

/// The preference of a service. An annotation with an unknown value ends the search: no preference.
#[must_use]
pub fn traffic_distribution(
    declared: Option<Declared>,
    service: &ObjectMeta,
    namespace: Option<&ObjectMeta>,
) -> TrafficDistribution {
    match declared {
        Some(Declared::PreferSameZone) => return TrafficDistribution::PreferSameZone,
        Some(Declared::PreferSameNode) => return TrafficDistribution::PreferSameNode,
        None => {}
    }

    let annotation = |meta: &ObjectMeta| {
        let value = meta
            .annotations
            .get(ANNOTATION)
            .filter(|value| !value.is_empty());
        value.map(|value| value.to_ascii_lowercase())
    };

    match annotation(service)
        .or_else(|| namespace.and_then(annotation))
        .as_deref()
    {
        Some("preferclose" | "prefersamezone") => TrafficDistribution::PreferSameZone,
        Some("prefersamenode") => TrafficDistribution::PreferSameNode,
        Some(_) | None => TrafficDistribution::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(value: &str) -> ObjectMeta {
        ObjectMeta {
            annotations: [(ANNOTATION.into(), value.into())].into(),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn the_spec_overrides_the_annotation_which_overrides_the_namespace() {
        let near = meta("PreferClose");
        let node = meta("prefersamenode");
        let found =
            |declared, service: &ObjectMeta| traffic_distribution(declared, service, Some(&node));
        assert_eq!(
            found(Some(Declared::PreferSameNode), &near),
            TrafficDistribution::PreferSameNode
        );
        assert_eq!(found(None, &near), TrafficDistribution::PreferSameZone);
        assert_eq!(found(None, &meta("")), TrafficDistribution::PreferSameNode);
        assert_eq!(found(None, &meta("Elsewhere")), TrafficDistribution::Any);
        assert_eq!(
            traffic_distribution(None, &meta(""), None),
            TrafficDistribution::Any
        );
    }
}
