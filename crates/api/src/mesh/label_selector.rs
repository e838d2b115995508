//! Label selectors of mesh config.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text_map::TextMap;

/// A label selector; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    pub match_labels: BTreeMap<String, String>,
    /// Additional conditions, all of which must hold.
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One condition on a label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelectorRequirement {
    /// Label that the condition is about, such as `kubernetes.io/metadata.name` of a namespace.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for `In` and `NotIn`.
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether the selector matches these labels.
    #[must_use]
    pub fn selects(&self, labels: &TextMap) -> bool {
        let has = |(key, value): (&String, &String)| {
            labels
                .get(key.as_str())
                .is_some_and(|label| **label == **value)
        };
        self.match_labels.iter().all(has)
            && self
                .match_expressions
                .iter()
                .all(|condition| condition.matches(labels))
    }
}

impl LabelSelectorRequirement {
    /// Whether the condition holds for these labels. An unknown operator never holds.
    fn matches(&self, labels: &TextMap) -> bool {
        let label = labels.get(self.key.as_str());
        let among =
            || label.is_some_and(|label| self.values.iter().any(|value| **value == **label));
        match self.operator.as_str() {
            "In" => among(),
            "NotIn" => !among(),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_labels_and_all_conditions_must_hold() {
        let labels = TextMap::from([("team".into(), "a".into())]);
        let selector = |operator: &str, values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let condition = LabelSelectorRequirement {
                key: "team".to_owned(),
                operator: operator.to_owned(),
                values,
            };
            LabelSelector {
                match_labels: BTreeMap::new(),
                match_expressions: vec![condition],
            }
        };

        assert!(selector("In", &["a", "b"]).selects(&labels));
        assert!(!selector("NotIn", &["a"]).selects(&labels));
        assert!(selector("NotIn", &["a"]).selects(&TextMap::new()));
        assert!(selector("Exists", &[]).selects(&labels));
        assert!(!selector("DoesNotExist", &[]).selects(&labels));
        assert!(!selector("Like", &["a"]).selects(&labels));
        let mut both = selector("Exists", &[]);
        both.match_labels = BTreeMap::from([("team".to_owned(), "b".to_owned())]);

        assert!(!both.selects(&labels));
    }
}
