//! Reads the cases and reports their outcomes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// The tests of the kinds run in parallel and add to one report.
static REPORT: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// Runs all cases of a kind by `differences`, reports them and fails if one differs. The project's
/// own directory must contain exactly `count` cases.
pub(crate) fn judge(kind: &str, count: usize, differences: impl Fn(&Value) -> Vec<String>) {
    let cases = cases(kind);

    match other_folder() {
        Some(folder) => assert!(!cases.is_empty(), "{}: no case of {kind}", folder.display()),
        None => assert_eq!(
            cases.len(),
            count,
            "{kind}: the number of cases differs from this test's count"
        ),
    }

    let outcome: BTreeMap<String, Vec<String>> = cases
        .iter()
        .map(|(name, case)| (format!("{kind}/{name}"), differences(case)))
        .collect();
    report(&outcome);
    let differing: Vec<_> = outcome
        .iter()
        .filter(|(_, differences)| !differences.is_empty())
        .map(|(name, differences)| format!("{name}\n  {}", differences.join("\n  ")))
        .collect();

    assert!(
        differing.is_empty(),
        "{} of {} differ:\n{}",
        differing.len(),
        outcome.len(),
        differing.join("\n")
    );
}

pub(crate) fn cases(kind: &str) -> BTreeMap<String, Value> {
    let file = folder().join(format!("{kind}.json"));
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap()
}

/// The folder with the cases.
fn folder() -> PathBuf {
    other_folder()
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent_parity"))
}

/// The directory in `NAVARCH_AGENT_PARITY`.
fn other_folder() -> Option<PathBuf> {
    std::env::var_os("NAVARCH_AGENT_PARITY").map(PathBuf::from)
}

/// Adds outcomes to the report, if the environment names one.
fn report(outcome: &BTreeMap<String, Vec<String>>) {
    let Some(path) = std::env::var_os("NAVARCH_AGENT_PARITY_REPORT") else {
        return;
    };
    let _alone = REPORT.lock();
    let written = std::fs::read_to_string(&path)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok());
    let mut report: Map<String, Value> = written.unwrap_or_default();
    for (name, differences) in outcome {
        report.insert(
            name.clone(),
            json!({ "equal": differences.is_empty(), "differences": differences }),
        );
    }
    std::fs::write(path, serde_json::to_string_pretty(&report).unwrap()).unwrap();
}

/// The texts of a JSON list.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

/// The texts of a JSON object.
pub(crate) fn text_map(value: &Value) -> BTreeMap<String, String> {
    let pairs = value.as_object().into_iter().flatten();
    pairs
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}
