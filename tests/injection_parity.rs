//! Navarch makes of a pod what istiod makes of it.
//!
//! `parity/injection.json` holds pods, what differs from the default installation, and the pods that came out. With
//! `NAVARCH_INJECTION_PARITY` the file that it names is taken instead, and `NAVARCH_INJECTION_PARITY_REPORT` names a file to
//! write the outcome to. With `NAVARCH_ISTIO_CHART` the templates of the chart in that folder (`istio-discovery`) are rendered
//! in place of the built-in ones. What differs on purpose is in [`DIFFERENCES`].

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test reads the environment, and has failed if it cannot read its cases"
)]

#[path = "injection/default.rs"]
mod default;
#[path = "injection/difference.rs"]
mod difference;
#[path = "injection/installations.rs"]
mod installations;
#[path = "injection/pods.rs"]
mod pods;
#[path = "injection/stock.rs"]
mod stock;

use std::collections::BTreeMap;
use std::path::Path;

use navarch::webhook::inject::{InjectError, InjectRequest, Injection, Injector, InjectorInputs};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde::Deserialize;
use serde_json::{Value, json};

/// A pod and what istiod makes of it.
#[derive(Deserialize)]
struct Case {
    /// The pod.
    pod: Value,
    /// What differs from the default installation.
    #[serde(default)]
    config: Value,
    /// The pod that came out, where it was changed.
    injected: Option<Value>,
    /// The answer, where it was not.
    response: Option<Value>,
}

/// Cases in which Navarch differs on purpose, with the reason. One that no longer differs fails the test.
const DIFFERENCES: [(&str, &str); 0] = [];

/// Asks an injector of the case's installation.
fn inject(case: &Case) -> Result<Injection, InjectError> {
    let inputs = match std::env::var_os("NAVARCH_ISTIO_CHART") {
        Some(chart) => stock::inputs(Path::new(&chart), &case.config),
        None => default::inputs(&case.config),
    };
    let injector = Injector::new(&inputs).unwrap();
    let request =
        InjectRequest { pod: &case.pod, namespace: "shop", namespace_annotations: None, parameters: &BTreeMap::new() };
    injector.inject(&request)
}

/// How the outcome of a case differs from istiod's.
fn differences(case: &Case) -> Vec<String> {
    let outcome = match inject(case) {
        Ok(injection) => injection.patch().map(|patch| Some(default::patched(&case.pod, patch))).unwrap_or_default(),
        Err(error) => return refused(case, &error),
    };
    match (&case.injected, outcome) {
        (Some(expected), Some(actual)) => difference::between(expected, &actual),
        (Some(_), None) => vec!["istiod injects the pod, Navarch leaves it as it is".to_owned()],
        (None, actual) => {
            let allowed = case.response.as_ref().is_some_and(|response| response["allowed"] == json!(true));
            let same = allowed && actual.is_none_or(|actual| actual == case.pod);
            if same { Vec::new() } else { vec![format!("istiod answers {:?}", case.response)] }
        }
    }
}

/// How a refusal differs from istiod's answer.
fn refused(case: &Case, error: &InjectError) -> Vec<String> {
    match &case.response {
        Some(response) if response["allowed"] != json!(true) => Vec::new(),
        Some(_) | None => vec![format!("istiod lets the pod in, Navarch refuses it: {error}")],
    }
}

#[test]
fn pods_come_out_as_istiod_has_them() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity/injection.json");
    let named = std::env::var_os("NAVARCH_INJECTION_PARITY");
    let text = std::fs::read_to_string(named.as_deref().map_or(own.as_path(), Path::new)).unwrap();
    let cases: BTreeMap<String, Case> = serde_json::from_str(&text).unwrap();
    let outcomes: BTreeMap<_, _> = cases.iter().map(|(name, case)| (name.as_str(), differences(case))).collect();
    if let Some(file) = std::env::var_os("NAVARCH_INJECTION_PARITY_REPORT") {
        let entry = |differences: &Vec<String>| json!({ "equal": differences.is_empty(), "differences": differences });
        let report: BTreeMap<_, _> = outcomes.iter().map(|(name, found)| (*name, entry(found))).collect();
        std::fs::write(file, serde_json::to_string_pretty(&report).unwrap()).unwrap();
    }
    let is_meant = |name: &str| DIFFERENCES.iter().any(|(case, _)| *case == name);
    let mut faults: Vec<_> = outcomes
        .iter()
        .filter(|(name, found)| !found.is_empty() && !is_meant(name))
        .map(|(name, found)| format!("{name}:\n  {}", found.join("\n  ")))
        .collect();
    if named.is_none() {
        let vain = DIFFERENCES.iter().filter(|(case, _)| outcomes.get(case).is_none_or(Vec::is_empty));
        faults.extend(vain.map(|(case, _)| format!("{case} is listed as different and is not")));
    }
    assert!(faults.is_empty(), "{} of {} cases differ:\n{}", faults.len(), outcomes.len(), faults.join("\n"));
}

/// What one way makes of a pod.
fn outcome(inputs: &InjectorInputs, pod: &Value) -> Result<Option<Value>, String> {
    let injector = Injector::new(inputs).unwrap();
    let request = InjectRequest { pod, namespace: "shop", namespace_annotations: None, parameters: &BTreeMap::new() };
    let injection = injector.inject(&request).map_err(|error| error.to_string())?;
    Ok(injection.patch().map(|patch| default::patched(pod, patch)))
}

#[test]
fn the_charts_templates_and_the_own_ones_make_the_same_of_any_pod() {
    let Some(chart) = std::env::var_os("NAVARCH_ISTIO_CHART") else { return };
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let strategy = (pods::pod(), installations::values());
    let result = runner.run(&strategy, |(pod, values)| {
        let config = json!({ "values": values });
        let own = outcome(&default::inputs(&config), &pod);
        let rendered = outcome(&stock::inputs(Path::new(&chart), &config), &pod);
        match (own, rendered) {
            // What a template would put into YAML as it is may break there.
            (_, Err(_)) => {}
            (Err(own), Ok(_)) => prop_assert!(false, "only the own way refuses: {own}"),
            (Ok(own), Ok(rendered)) => {
                let found = difference::between(&json!(rendered), &json!(own));
                prop_assert!(found.is_empty(), "{}", found.join("\n"));
            }
        }
        Ok(())
    });
    assert!(result.is_ok(), "{}", result.unwrap_err());
}
