//! Field and label selectors of lists and watches.

use serde_json::Value;

/// The conditions of a request: pairs of a path or label and its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    fields: Vec<Condition>,
    labels: Vec<Condition>,
    /// The only namespace; empty for all.
    pub(crate) namespace: String,
}

#[derive(Clone, Debug)]
struct Condition {
    key: String,
    value: String,
    must_equal: bool,
    /// Whether the label only has to exist.
    is_any: bool,
}

impl Selector {
    /// From the texts of a request's query.
    pub(crate) fn parse(fields: &str, labels: &str, namespace: &str) -> Self {
        Self {
            fields: conditions(fields),
            labels: conditions(labels),
            namespace: namespace.to_owned(),
        }
    }

    /// Whether an object is selected.
    pub(crate) fn selects(&self, namespace: &str, object: &Value) -> bool {
        if !self.namespace.is_empty() && self.namespace != namespace {
            return false;
        }
        let labels = object.get("metadata").and_then(|meta| meta.get("labels"));
        let label = |key: &str| labels?.get(key)?.as_str();
        let field = |path: &str| {
            let pointer = format!("/{}", path.replace('.', "/"));
            object.pointer(&pointer)?.as_str()
        };
        self.labels
            .iter()
            .all(|condition| condition.holds(label(&condition.key)))
            && self
                .fields
                .iter()
                .all(|condition| condition.holds(field(&condition.key)))
    }
}

impl Condition {
    fn holds(&self, value: Option<&str>) -> bool {
        if self.is_any {
            return value.is_some() == self.must_equal;
        }
        (value.unwrap_or_default() == self.value) == self.must_equal
    }
}

fn conditions(text: &str) -> Vec<Condition> {
    let condition = |part: &str| {
        let (part, must_equal) = match part.strip_prefix('!') {
            Some(part) => (part, false),
            None => (part, true),
        };
        let (key, value, equal, is_any) = match part.split_once("!=") {
            Some((key, value)) => (key, value, false, false),
            None => match part.split_once('=') {
                Some((key, value)) => (key, value.trim_start_matches('='), true, false),
                None => (part, "", true, true),
            },
        };
        Condition {
            key: key.trim().to_owned(),
            value: value.trim().to_owned(),
            must_equal: equal == must_equal,
            is_any,
        }
    };
    text.split(',')
        .filter(|part| !part.is_empty())
        .map(condition)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_on_fields_and_labels_select() {
        let object = json!({ "metadata": { "name": "a", "labels": { "x": "1" } }, "type": "t" });
        let selects = |fields, labels| Selector::parse(fields, labels, "").selects("", &object);
        assert!(selects("metadata.name=a", "x=1"));
        assert!(selects("type!=other", "x"));
        assert!(!selects("type!=t", ""));
        assert!(!selects("", "y"));
        assert!(selects("", "!y"));
        assert!(!selects("", "x!=1"));
    }
}
