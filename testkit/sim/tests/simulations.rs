//! Simulations that `make test` runs, and tests of the simulator itself.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, thread};

use navarch_sim::api_server::Plant;
use navarch_sim::driver::{self, Report};
use navarch_sim::schedule::Schedule;
use navarch_sim::shrink::shrink;
use navarch_sim::simulation::Options;

/// The seeds that are run. `make simulate` runs others.
const SEEDS: RangeInclusive<u64> = 1..=6;

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
    for case in Schedule::cases() {
        let options = Options {
            seed: 1,
            case: Some(case.to_owned()),
            ..Options::default()
        };
        let report = driver::run(program(), &options).unwrap();
        assert!(report.holds(), "{case}: {:?}", report.violations);
    }
}

/// Objects, proxies, roots and clusters come and go five times, and nothing else happens.
#[test]
fn memory_is_back_to_its_start() {
    let options = Options {
        seed: 1,
        keep: Some(Vec::new()),
        checks_memory: true,
        ..Options::default()
    };
    let report = driver::run(program(), &options).unwrap();
    assert!(report.holds(), "{:?}", report.violations);
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

/// `scripts/simulate-faults` applies all of them to one tree.
#[test]
fn the_faults_to_be_put_back_apply_to_the_tree() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = fs::read_dir(package.join("faults"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > 20, "{} patches", files.len());

    // What a patch says before its first line of a difference is no part of it.
    let patches: String = files
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).unwrap();
            let start = text.find("diff --git").unwrap();
            text[start..].to_owned()
        })
        .collect();
    let mut git = Command::new("git")
        .args(["apply", "--check", "-C1", "--recount", "-"])
        .current_dir(package.join("../.."))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = git.stdin.take().unwrap();
    input.write_all(patches.as_bytes()).unwrap();
    drop(input);

    let output = git.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}
