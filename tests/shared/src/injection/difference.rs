//! The differences of two pods, with their paths.

use serde_json::Value;

/// The differences, each with its path.
pub fn between(expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", expected, actual, &mut found);
    found
}

/// Compares the values at a path.
fn compare(at: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (name, value) in expected {
                match actual.get(name) {
                    Some(other) => compare(&format!("{at}/{name}"), value, other, found),
                    None => found.push(format!("{at}/{name} is missing: {value}")),
                }
            }

            let further = actual
                .iter()
                .filter(|(name, _)| !expected.contains_key(*name));
            found.extend(further.map(|(name, value)| format!("{at}/{name} is too much: {value}")));
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                compare(&format!("{at}/{index}"), expected, actual, found);
            }
        }
        (expected, actual) if expected == actual => {}
        (expected, actual) => found.push(format!("{at} is {actual}, istiod has {expected}")),
    }
}
