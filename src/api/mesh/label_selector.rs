//! Label selectors as mesh config writes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A selector of labels; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must be there with these values.
    pub match_labels: BTreeMap<String, String>,
    /// Further conditions; all must hold.
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One condition on a label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelectorRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values that `In` and `NotIn` speak of.
    pub values: Vec<String>,
}
