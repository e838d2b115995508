//! The comparison of the crate `navarch-shadow`, as text.

pub(crate) use navarch_shadow::canonical::resources;
use navarch_shadow::difference;
use serde_json::Value;

/// Lists how `actual` differs from `expected`; empty if equal.
pub(crate) fn diff(expected: &[Value], actual: &[Value]) -> Vec<String> {
    let found = difference::differences(expected, actual);
    found.iter().map(ToString::to_string).collect()
}

/// Lists the paths at which two values differ.
pub(crate) fn walk(expected: &Value, actual: &Value, name: &str, out: &mut Vec<String>) {
    let found = difference::of_values(name, expected, actual);
    out.extend(found.iter().map(ToString::to_string));
}
