//! No list of a namespace's user costs the square of its length: four times the length costs about
//! four times as much, for decoding, translation, and a change of one element. `benches/growth`
//! prints the figures.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly"
)]

use std::time::Duration;

use cases::{Case, Reader};
use measure::{Cost, measure};
use navarch_tests::growth::{cases, measure};

/// The maximum growth of the cost for four times the length: 4 is linear, 16 is quadratic.
const MAX_GROWTH: f64 = 9.0;
/// Smaller costs are not compared: the clock is too coarse.
const LEAST: Duration = Duration::from_millis(40);
/// The prefix of the names of the Gateway API's lists.
const GATEWAY_API: &str = "Gateway API: ";
/// How often a growth that looks too large is measured again.
const TRIES: usize = 3;

/// A part of a cost, and its name.
type Step = (&'static str, fn(&Cost) -> Duration);

/// The parts that grow too much, with both costs.
fn too_steep(case: &Case) -> Vec<String> {
    let steps: [Step; 3] = [
        ("read", |cost| cost.read),
        ("shown", |cost| cost.shown),
        ("edit", |cost| cost.edit),
    ];
    let mut steep: Vec<String> = Vec::new();

    for _ in 0..TRIES {
        let small = measure(case, case.size);
        let large = measure(case, (case.size * 4).min(case.longest));
        let is_steep = |of: fn(&Cost) -> Duration| {
            of(&large) > LEAST && of(&large).as_secs_f64() > MAX_GROWTH * of(&small).as_secs_f64()
        };
        let found = steps.iter().filter(|(_, of)| is_steep(*of));
        steep = found
            .map(|(step, of)| {
                format!(
                    "{}: {step}: {:?} to {:?}",
                    case.name,
                    of(&small),
                    of(&large)
                )
            })
            .collect();

        if steep.is_empty() {
            break;
        }
    }

    steep
}

/// Fails if a selected case grows too much.
fn judge(part: impl Fn(&Case) -> bool) {
    let cases: Vec<&Case> = cases::all().filter(|case| part(case)).collect();
    assert!(!cases.is_empty());
    let steep: Vec<String> = cases.into_iter().flat_map(too_steep).collect();
    assert!(
        steep.is_empty(),
        "four times the list costs more than {MAX_GROWTH} times as much:\n{}",
        steep.join("\n")
    );
}

#[test]
fn service_entries_grow_in_proportion() {
    judge(|case| case.name.contains("ServiceEntr"));
}

#[test]
fn routes_grow_in_proportion() {
    judge(|case| {
        case.name.starts_with("VirtualService") || case.name.starts_with("DestinationRule")
    });
}

#[test]
fn gateways_grow_in_proportion() {
    judge(|case| case.reader == Reader::Gateway && !case.name.starts_with(GATEWAY_API));
}

#[test]
fn lists_of_the_gateway_api_grow_in_proportion() {
    judge(|case| case.name.starts_with(GATEWAY_API));
}

#[test]
fn other_lists_grow_in_proportion() {
    let others = ["ServiceEntr", "VirtualService", "DestinationRule"];
    judge(|case| {
        case.reader == Reader::Sidecar && !others.iter().any(|name| case.name.contains(name))
    });
}

#[test]
fn an_edit_of_one_host_computes_nothing_for_the_others() {
    let case = cases::all()
        .find(|case| case.name == "ServiceEntry: hosts")
        .unwrap();
    let [small, large] = [100, 1_000].map(|length| measure(case, length).stats);
    // One cluster and its endpoints are removed, others are added. Lists of all names are stored in
    // chunks, and chunks that differ are rebuilt.
    assert!(
        large.computed <= small.computed + 60,
        "{small:?}, {large:?}"
    );
}
