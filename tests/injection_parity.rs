//! Navarch injects pods exactly as istiod does.
//!
//! `parity/injection.json` contains pods, the overrides of the default configuration, and the
//! injected pods. `NAVARCH_INJECTION_PARITY` names another file to use, and
//! `NAVARCH_INJECTION_PARITY_REPORT` a file for the outcome. The same pods are also injected with
//! the templates of Istio's chart, which `scripts/istio-chart` fetches, instead of the built-in
//! ones.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test reads the environment, and must fail if it cannot read its cases"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use navarch::webhook::inject::{InjectError, InjectRequest, Injection, Injector, InjectorInputs};
use navarch_testkit::{envoy, skip};
use navarch_tests::injection::{default, difference, installations, pods, stock};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde::Deserialize;
use serde_json::{Value, json};

/// A pod and istiod's result.
#[derive(Deserialize)]
struct Case {
    pod: Value,
    /// The overrides of the default configuration.
    #[serde(default)]
    config: Value,
    /// The injected pod, if the pod was changed.
    injected: Option<Value>,
    /// The response, if it was not.
    response: Option<Value>,
}

/// The number of cases in the project's own file.
const CASES: usize = 37;

/// Istio's chart; `None` if it has not been fetched.
fn chart() -> Option<PathBuf> {
    let chart = envoy::program()
        .parent()
        .expect("the tools' directory has a parent")
        .with_file_name("istio-chart");
    if !chart.join("values.yaml").is_file() {
        skip::skip("Istio's chart is missing: run `make tools` (scripts/istio-chart)");
        return None;
    }
    Some(chart)
}

/// Injects the pod of a case.
fn inject(case: &Case, inputs: &InjectorInputs) -> Result<Injection, InjectError> {
    let injector = Injector::new(inputs).unwrap();
    let request = InjectRequest {
        pod: &case.pod,
        namespace: "shop",
        namespace_annotations: None,
        parameters: &BTreeMap::new(),
    };
    injector.inject(&request)
}

/// How the result of a case, passed through `clean`, differs from istiod's.
fn differences(case: &Case, inputs: &InjectorInputs, clean: fn(Value) -> Value) -> Vec<String> {
    let outcome = match inject(case, inputs) {
        Ok(injection) => injection
            .patch()
            .map(|patch| Some(default::patched(&case.pod, patch)))
            .unwrap_or_default(),
        Err(error) => return rejected(case, &error),
    };

    match (&case.injected, outcome) {
        (Some(expected), Some(actual)) => difference::between(expected, &clean(actual)),
        (Some(_), None) => vec!["istiod injects the pod, Navarch leaves it as it is".to_owned()],
        (None, actual) => {
            let allowed = case
                .response
                .as_ref()
                .is_some_and(|response| response["allowed"] == json!(true));
            let same = allowed && actual.is_none_or(|actual| actual == case.pod);
            if same {
                Vec::new()
            } else {
                vec![format!("istiod answers {:?}", case.response)]
            }
        }
    }
}

/// How a rejection differs from istiod's response.
fn rejected(case: &Case, error: &InjectError) -> Vec<String> {
    match &case.response {
        Some(response) if response["allowed"] != json!(true) => Vec::new(),
        Some(_) | None => vec![format!(
            "istiod admits the pod, Navarch rejects it: {error}"
        )],
    }
}

#[test]
fn pods_are_injected_as_by_istiod() {
    let named = std::env::var_os("NAVARCH_INJECTION_PARITY");
    let cases = named.map_or_else(own_cases, |file| cases(Path::new(&file)));
    assert!(!cases.is_empty(), "there are no cases");
    let differences = |case: &Case| differences(case, &default::inputs(&case.config), |pod| pod);
    let outcomes: BTreeMap<_, _> = cases
        .iter()
        .map(|(name, case)| (name.as_str(), differences(case)))
        .collect();

    if let Some(file) = std::env::var_os("NAVARCH_INJECTION_PARITY_REPORT") {
        let entry = |differences: &Vec<String>| json!({ "equal": differences.is_empty(), "differences": differences });
        let report: BTreeMap<_, _> = outcomes
            .iter()
            .map(|(name, found)| (*name, entry(found)))
            .collect();
        std::fs::write(file, serde_json::to_string_pretty(&report).unwrap()).unwrap();
    }

    let faults: Vec<_> = outcomes
        .iter()
        .filter(|(_, found)| !found.is_empty())
        .map(|(name, found)| format!("{name}:\n  {}", found.join("\n  ")))
        .collect();

    assert!(
        faults.is_empty(),
        "{} of {} cases differ:\n{}",
        faults.len(),
        outcomes.len(),
        faults.join("\n")
    );
}

fn cases(file: &Path) -> BTreeMap<String, Case> {
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// All cases of the project's own file.
fn own_cases() -> BTreeMap<String, Case> {
    let cases = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity/injection.json"));
    assert_eq!(cases.len(), CASES, "the number of cases differs from CASES");
    cases
}

#[test]
fn the_charts_templates_inject_pods_as_istiod_does() {
    let Some(chart) = chart() else { return };
    let cases = own_cases();
    let differences = |case: &Case| {
        differences(
            case,
            &stock::inputs(&chart, &case.config),
            stock::without_later_parts,
        )
    };

    let found: Vec<(&str, Vec<String>)> = cases
        .iter()
        .map(|(name, case)| (name.as_str(), differences(case)))
        .filter(|(_, found)| !found.is_empty())
        .collect();
    let faults: Vec<String> = found
        .iter()
        .map(|(name, found)| format!("{name}:\n  {}", found.join("\n  ")))
        .collect();

    assert!(
        faults.is_empty(),
        "{} of {} cases differ:\n{}",
        faults.len(),
        cases.len(),
        faults.join("\n")
    );
}

/// The injected pod of one injector.
fn outcome(inputs: &InjectorInputs, pod: &Value) -> Result<Option<Value>, String> {
    let injector = Injector::new(inputs).unwrap();
    let request = InjectRequest {
        pod,
        namespace: "shop",
        namespace_annotations: None,
        parameters: &BTreeMap::new(),
    };
    let injection = injector
        .inject(&request)
        .map_err(|error| error.to_string())?;
    Ok(injection.patch().map(|patch| default::patched(pod, patch)))
}

/// A pod as the API server would store it: unknown fields are dropped. A pod that the API server
/// would reject is returned unchanged.
fn stored(pod: Value) -> Value {
    let typed = serde_json::from_value::<k8s_openapi::api::core::v1::Pod>(pod.clone());
    typed
        .ok()
        .and_then(|typed| serde_json::to_value(typed).ok())
        .unwrap_or(pod)
}

#[test]
fn a_pod_whose_traffic_is_not_captured_gets_no_empty_list_from_the_charts_templates() {
    let Some(chart) = chart() else { return };
    let annotations = json!({ "sidecar.istio.io/interceptionMode": "NONE", "sidecar.istio.io/nativeSidecar": "false" });
    let pod = json!({
        "metadata": { "name": "web", "annotations": annotations },
        "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
    });
    let injected = outcome(&stock::inputs(&chart, &json!({})), &pod)
        .unwrap()
        .unwrap();
    assert_eq!(
        injected["spec"]["containers"].as_array().map(Vec::len),
        Some(2),
        "{injected}"
    );
    assert_eq!(injected["spec"].get("initContainers"), None);
}

#[test]
fn chart_and_builtin_templates_inject_random_pods_equally() {
    let Some(chart) = chart() else { return };
    let compared = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config {
        cases: 200,
        source_file: Some(file!()),
        ..Config::default()
    });
    let strategy = (pods::pod(), installations::values());
    let result = runner.run(&strategy, |(pod, values)| {
        let config = json!({ "values": values });
        let own = outcome(&default::inputs(&config), &pod);
        let rendered = outcome(&stock::inputs(&chart, &config), &pod);
        match (own, rendered) {
            // The chart's templates insert some values into YAML without quoting, which may fail.
            (_, Err(_)) => {}
            (Err(own), Ok(_)) => {
                prop_assert!(false, "only the built-in injector rejects the pod: {own}")
            }
            (Ok(own), Ok(rendered)) => {
                compared.set(compared.get() + 1);
                let rendered = rendered.map(stock::without_later_parts);
                let found =
                    difference::between(&json!(rendered.map(stored)), &json!(own.map(stored)));
                prop_assert!(found.is_empty(), "{}", found.join("\n"));
            }
        }

        Ok(())
    });

    assert!(result.is_ok(), "{}", result.unwrap_err());
    assert!(
        compared.get() > 100,
        "only {} of 200 pods were compared",
        compared.get()
    );
}
