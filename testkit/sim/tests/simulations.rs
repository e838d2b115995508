//! Simulations that `make test` runs, and tests of the simulator itself.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::ops::RangeInclusive;
use std::path::Path;
use std::thread;

use navarch_sim::api_server::Plant;
use navarch_sim::driver::{self, Report};
use navarch_sim::shrink::shrink;
use navarch_sim::simulation::Options;

/// The seeds that are run. `make simulate` runs others.
const SEEDS: RangeInclusive<u64> = 1..=6;
/// The cases of faults that were found, and mended since.
const CASES: [&str; 2] = ["ingress-while-writes-fail", "report-deleted-in-silence"];

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_simulate"))
}

fn run(seed: u64) -> Report {
    let options = Options {
        seed,
        ..Options::default()
    };
    driver::run(program(), &options).unwrap()
}

#[test]
fn all_invariants_hold() {
    let failed: Vec<String> = thread::scope(|scope| {
        let half = |parity: u64| {
            scope.spawn(move || {
                SEEDS
                    .filter(|seed| seed % 2 == parity)
                    .map(|seed| (seed, run(seed)))
                    .filter(|(_, report)| !report.holds())
                    .map(|(seed, report)| format!("seed {seed}: {:?}", report.violations))
                    .collect::<Vec<_>>()
            })
        };
        let halves = [half(0), half(1)];
        halves
            .into_iter()
            .flat_map(|half| half.join().unwrap())
            .collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn faults_that_were_found_stay_mended() {
    for case in CASES {
        let options = Options {
            seed: 1,
            case: Some(case.to_owned()),
            ..Options::default()
        };
        let report = driver::run(program(), &options).unwrap();
        assert!(report.holds(), "{case}: {:?}", report.violations);
    }
}

#[test]
fn a_seed_has_one_story() {
    let seed = *SEEDS.end() + 1;
    assert_eq!(run(seed), run(seed));
}

#[test]
fn a_fault_is_found_and_its_schedule_shrinks() {
    let planted = |seed: u64, keep: Option<Vec<usize>>| {
        let options = Options {
            seed,
            keep,
            plant: Some(Plant::LostDeletions),
            ..Options::default()
        };
        driver::run(program(), &options).unwrap()
    };

    let (seed, whole) = (1..20)
        .map(|seed| (seed, planted(seed, None)))
        .find(|(_, report)| !report.holds())
        .expect("a lost deletion is found");

    // A few steps are enough to see that it shrinks.
    let mut steps = 0;
    let kept = shrink(whole.events, |keep| {
        steps += 1;
        steps <= 4 && planted(seed, Some(keep.to_vec())).invariant() == whole.invariant()
    });
    assert!(kept.len() < whole.events, "{} events", kept.len());
}
