//! No list that a namespace's user writes costs the square of its length: four times the list costs
//! about four times as much, whether it is read, shown to a proxy, or changed in one element.
//! `benches/growth` shows the figures.

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

#[path = "../benches/growth/cases.rs"]
mod cases;
#[path = "../benches/growth/measure.rs"]
mod measure;

use std::time::Duration;

use cases::{Case, Reader};
use measure::{Cost, measure};

/// How much more four times as much may cost: 4 is linear, 16 is quadratic.
const MAX_GROWTH: f64 = 9.0;
/// What costs less is not judged: the clock is too coarse.
const LEAST: Duration = Duration::from_millis(40);
/// What the names of the Gateway API's lists begin with.
const GATEWAY_API: &str = "Gateway API: ";
/// How often a growth that looks too large is measured again.
const TRIES: usize = 3;

/// What is judged of a cost, and its name.
type Step = (&'static str, fn(&Cost) -> Duration);

/// The steps of which four times the list costs too much, with both costs.
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

/// Judges the cases of a part.
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
    let [small, large] = [100, 1_000].map(|length| measure(case, length).settled);
    // One cluster and its endpoints go, others come; lists of all are cut into pieces, and those
    // that differ are made again.
    assert!(
        large.computed <= small.computed + 60,
        "{small:?}, {large:?}"
    );
}
