//! Rules that istio-iptables would pass to `iptables-restore`.

use std::collections::BTreeMap;

use navarch::agent::iptables::{HostFacts, Options, dry_run};
use serde_json::Value;

use super::cases::{text_map, texts};

/// How a case's rules differ from the expected ones.
pub(crate) fn differences(case: &Value) -> Vec<String> {
    let arguments = texts(&case["args"]);
    let variables = text_map(&case["env"]);
    let expected = &case["expect"];
    let planned = Options::read(
        &arguments,
        &variables.into_iter().collect(),
        &host(expected),
    )
    .map_err(|error| error.to_string())
    .and_then(|options| dry_run(&options).map_err(|error| error.to_string()));
    let planned: BTreeMap<String, Vec<String>> = match planned {
        Ok(planned) => planned
            .into_iter()
            .map(|run| (run.program, run.lines))
            .collect(),
        Err(error) => return vec![format!("rejected: {error}")],
    };

    let restoring = planned
        .keys()
        .filter(|program| program.ends_with("-restore"))
        .cloned();
    let mut programs: Vec<_> = restoring
        .chain(expected.as_object().unwrap().keys().cloned())
        .collect();
    programs.sort();

    programs.dedup();
    let none = Vec::new();
    programs
        .iter()
        .flat_map(|program| {
            lines(
                program,
                &texts(&expected[program]),
                planned.get(program).unwrap_or(&none),
            )
        })
        .collect()
}

/// The properties of the machine: cases were recorded in a network namespace, with IPv6 if the
/// expected output has rules for it.
fn host(expected: &Value) -> HostFacts {
    let mut addresses = vec!["127.0.0.1", "10.244.0.5"];
    if expected.get("ip6tables-restore").is_some() {
        addresses.push("fd00:10::5");
    }
    HostFacts {
        addresses: addresses
            .into_iter()
            .map(|address| address.parse().unwrap())
            .collect(),
        name_servers: Some(vec!["10.96.0.10".to_owned(), "fd00::a".to_owned()]),
        proxy_user: None,
    }
}

/// Describes the first difference of two lists of lines.
fn lines(program: &str, expected: &[String], actual: &[String]) -> Vec<String> {
    let longest = expected.len().max(actual.len());
    let differing = (0..longest).find(|place| expected.get(*place) != actual.get(*place));
    let shown = |lines: &[String], place: usize| {
        lines
            .get(place)
            .cloned()
            .unwrap_or_else(|| "(nothing)".to_owned())
    };

    differing
        .map(|place| {
            format!(
                "{program} line {place}: expected {}, got {}",
                shown(expected, place),
                shown(actual, place)
            )
        })
        .into_iter()
        .collect()
}
