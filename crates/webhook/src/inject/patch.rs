//! The JSON patch (RFC 6902) from the original pod to the injected pod.

use serde_json::{Map, Value, json};

/// Parts of a pod that injection never changes and that may be large; they are not compared.
const UNTOUCHED: [&str; 2] = ["/metadata/managedFields", "/status"];

/// The operations that transform `before` into `after`, in order.
pub(super) fn patch(before: &Value, after: &Value) -> Value {
    let mut patch = Patch::default();
    patch.values(before, after);
    Value::Array(patch.operations)
}

/// The operations so far.
#[derive(Debug, Default)]
struct Patch {
    /// The current position as a JSON pointer.
    at: String,
    operations: Vec<Value>,
}

impl Patch {
    /// Compares a member of the current value: enters the member, runs the comparison, and returns.
    fn within(&mut self, step: &str, compare: impl FnOnce(&mut Self)) {
        let length = self.at.len();
        self.at.push('/');
        for sign in step.chars() {
            match sign {
                '~' => self.at.push_str("~0"),
                '/' => self.at.push_str("~1"),
                _ => self.at.push(sign),
            }
        }
        compare(self);
        self.at.truncate(length);
    }

    /// Records an operation at the current position.
    fn note(&mut self, operation: &str, value: Option<&Value>) {
        let mut noted = json!({ "op": operation, "path": self.at });
        if let (Some(value), Value::Object(fields)) = (value, &mut noted) {
            fields.insert("value".to_owned(), value.clone());
        }
        self.operations.push(noted);
    }

    /// Compares two values.
    fn values(&mut self, before: &Value, after: &Value) {
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => self.maps(before, after),
            (Value::Array(before), Value::Array(after)) => self.lists(before, after),
            (before, after) if before == after => {}
            (_, after) => self.note("replace", Some(after)),
        }
    }

    /// Compares two objects.
    fn maps(&mut self, before: &Map<String, Value>, after: &Map<String, Value>) {
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            self.within(name, |patch| {
                if !UNTOUCHED.contains(&patch.at.as_str()) {
                    patch.note("remove", None);
                }
            });
        }
        for (name, value) in after {
            self.within(name, |patch| match before.get(name) {
                Some(other) => patch.values(other, value),
                None => patch.note("add", Some(value)),
            });
        }
    }

    /// Compares two lists: skips the common start and end, and compares the items between them
    /// pairwise if their numbers are equal, else replaces them.
    fn lists(&mut self, before: &[Value], after: &[Value]) {
        let begin = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        let (_, old) = before.split_at(begin);
        let (_, new) = after.split_at(begin);
        let end = old
            .iter()
            .rev()
            .zip(new.iter().rev())
            .take_while(|(a, b)| a == b)
            .count();

        let (old, _) = old.split_at(old.len() - end);
        let (new, _) = new.split_at(new.len() - end);
        if old.len() == new.len() {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                self.within(&(begin + at).to_string(), |patch| patch.values(old, new));
            }
            return;
        }

        for at in (begin..begin + old.len()).rev() {
            self.within(&at.to_string(), |patch| patch.note("remove", None));
        }

        for (at, value) in new.iter().enumerate() {
            self.within(&(begin + at).to_string(), |patch| {
                patch.note("add", Some(value))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_makes_the_second_of_the_first() {
        let pods = [
            json!({"a": [1, 2, 3], "b": {"x/y~": 1}}),
            json!({"a": [2, 3, 4, 5], "c": null}),
            json!({"a": [], "b": {"x/y~": 2, "z": []}}),
            json!({"a": [1, {"k": 1}, 3], "b": 7}),
        ];

        for before in &pods {
            for after in &pods {
                let patch: json_patch::Patch =
                    serde_json::from_value(patch(before, after)).unwrap();
                let mut patched = before.clone();
                json_patch::patch(&mut patched, &patch).unwrap();
                assert_eq!(patched, *after);
            }
            assert_eq!(patch(before, before), json!([]));
        }

        assert_eq!(
            patch(&json!({"a": 1, "status": {}}), &json!({"a": 1})),
            json!([])
        );
    }
}
