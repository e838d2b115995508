//! Metrics of rejected objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Problem, ProblemKind};
use navarch_api::object::Kind;
use navarch_base::counter::Count;
use navarch_base::label_text::LabelText;
use navarch_tables::hash::KeyedSet;

/// The kind label of mesh config.
const MESH_CONFIG: &str = "MeshConfig";

/// Maximum number of rejected objects with labels of their own; others share one label.
const MAX_NAMED: usize = 10_000;
/// The shared label.
const OTHER_LABEL: &str = "other";

/// Labels of a rejection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConfigLabels {
    r#type: &'static str,
    /// The place of the object: a file, or `k8s://<kind>/<namespace>/<name>`.
    name: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    /// Its name; `other` beyond the maximum.
    kind: &'static str,
}

/// Counts rejections, in total and currently.
#[derive(Debug)]
pub struct RejectedConfigs {
    /// `pilot_total_rejected_configs`: in total.
    total: Family<ConfigLabels, Count>,
    /// `navarch_refused_configs`: currently.
    current: Family<KindLabel, Gauge>,
    /// Names with their own label in `total`. Counters are never removed, and users may create many
    /// objects.
    named: KeyedSet<(&'static str, Arc<str>)>,
    /// Current rejections by place.
    places: BTreeMap<Arc<str>, Vec<&'static str>>,
}

/// The kind of source that reported a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemSource {
    /// A source of mesh config and networks.
    Mesh,
    /// A source of objects.
    Objects,
}

impl RejectedConfigs {
    /// No rejections yet.
    pub fn register(registry: &mut Registry) -> Self {
        let total = Family::default();
        let help = "Objects and mesh configs rejected";
        registry.register("pilot_total_rejected_configs", help, total.clone());

        let current = Family::<KindLabel, Gauge>::default();
        let help =
            "Objects and mesh configs currently rejected; their last valid versions stay in use";
        registry.register("navarch_refused_configs", help, current.clone());
        current
            .get_or_create(&KindLabel { kind: MESH_CONFIG })
            .set(0);

        Self {
            total,
            current,
            named: KeyedSet::default(),
            places: BTreeMap::new(),
        }
    }

    /// The name under which a place is counted.
    fn name_of(&mut self, kind: &'static str, place: &Arc<str>) -> Arc<str> {
        let key = (kind, place.clone());
        if self.named.len() < MAX_NAMED && !self.named.contains(&key) {
            self.named.insert(key.clone());
        }
        if self.named.contains(&key) {
            key.1
        } else {
            Arc::from(OTHER_LABEL)
        }
    }

    /// Replaces the problems of a place.
    pub fn note(&mut self, origin: ProblemSource, place: &Arc<str>, problems: &[Problem]) {
        let is_rejection = |problem: &&Problem| match &problem.fault {
            ProblemKind::Rejected(_)
            | ProblemKind::Unreadable(_)
            | ProblemKind::Duplicate { .. } => true,
            ProblemKind::UnknownField(_) | ProblemKind::UnknownKind | ProblemKind::Warning(_) => {
                false
            }
        };
        let kind_of = |problem: &Problem| match origin {
            ProblemSource::Mesh => MESH_CONFIG,
            ProblemSource::Objects => {
                let known = Kind::ALL
                    .into_iter()
                    .find(|kind| kind.as_str() == problem.subject.kind);
                known.map_or("other", Kind::as_str)
            }
        };

        let mut kinds: Vec<_> = problems.iter().filter(is_rejection).map(kind_of).collect();

        if origin == ProblemSource::Mesh {
            // A mesh config counts once, whatever the number of its problems.
            kinds.dedup();
        }

        let before = if kinds.is_empty() {
            self.places.remove(place).unwrap_or_default()
        } else {
            self.places
                .insert(place.clone(), kinds.clone())
                .unwrap_or_default()
        };

        for kind in before {
            self.current.get_or_create(&KindLabel { kind }).dec();
        }

        for kind in kinds {
            self.current.get_or_create(&KindLabel { kind }).inc();
            let name = self.name_of(kind, place).into();
            self.total
                .get_or_create(&ConfigLabels { r#type: kind, name })
                .inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::FilePosition;
    use navarch_api::decode::Subject;
    use navarch_api::field_error::FieldError;

    #[test]
    fn the_number_of_rows_of_objects_is_limited() {
        let mut rejected = RejectedConfigs::register(&mut Registry::default());
        let names: BTreeSet<Arc<str>> = (0..2 * MAX_NAMED)
            .map(|number| rejected.name_of("Gateway", &number.to_string().into()))
            .collect();
        assert_eq!(names.len(), MAX_NAMED + 1);
        assert_eq!(&*rejected.name_of("Gateway", &"5".into()), "5");
    }

    #[test]
    fn a_rejected_object_counts_until_it_is_accepted() {
        let mut registry = Registry::default();
        let mut configs = RejectedConfigs::register(&mut registry);
        let place: Arc<str> = Arc::from("k8s://Gateway/shop/a");
        let problem = |fault| Problem {
            place: FilePosition {
                file: place.clone(),
                line: 0,
            },
            subject: Subject {
                kind: "Gateway".to_owned(),
                ..Subject::default()
            },
            fault,
        };

        let rejected = || problem(ProblemKind::Rejected(FieldError::new("spec", "is odd")));
        let text = |registry: &Registry| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
            text
        };

        configs.note(
            ProblemSource::Objects,
            &place,
            &[
                rejected(),
                problem(ProblemKind::UnknownField("spec.x".to_owned())),
            ],
        );

        configs.note(
            ProblemSource::Mesh,
            &Arc::from("mesh"),
            &[rejected(), rejected()],
        );
        let metrics = text(&registry);
        assert!(
            metrics.contains("navarch_refused_configs{kind=\"Gateway\"} 1\n"),
            "{metrics}"
        );

        assert!(
            metrics.contains("navarch_refused_configs{kind=\"MeshConfig\"} 1\n"),
            "{metrics}"
        );
        configs.note(ProblemSource::Objects, &place, &[]);
        let metrics = text(&registry);
        assert!(
            metrics.contains("navarch_refused_configs{kind=\"Gateway\"} 0\n"),
            "{metrics}"
        );

        assert!(
            metrics.contains("type=\"Gateway\",name=\"k8s://Gateway/shop/a\"} 1\n"),
            "{metrics}"
        );
    }
}
