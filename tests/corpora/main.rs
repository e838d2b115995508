//! Replays the corpus of every fuzz target: no input may cause a panic or an endless loop, neither
//! unchanged nor with small changes; and reads the corpus of stored state ([`state`]).
//!
//! A new target gets its name in `targets!`; see `fuzz/Cargo.toml`.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, print, and has a clock"
)]

mod authority;
mod state;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Declares a test for each target.
macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { replay(stringify!($name), navarch_fuzz_targets::$name::run); })*
        /// The names of all targets.
        const TARGETS: &[&str] = &[$(stringify!($name)),*];
    };
}

targets! {
    access_logs, admission_body, admission_review, certificate_request, csr, discovery_request, dns_packet, grpc_frames, injection_annotations, injection_templates, jwks, jwt, node_metadata, pem_bundle, probe_spec, prometheus_text, wasm_image, watch_event, workload_registration, yaml_to_xds,
}

/// Timeout of one input.
const LIMIT: Duration = Duration::from_secs(60);

/// Changed variants of each input.
const CHANGES: u64 = 6;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz")
        .join(name)
}

/// Runs a target on its corpus.
fn replay(target: &str, run: fn(&[u8])) {
    let mut files: Vec<PathBuf> = fs::read_dir(folder("corpus").join(target))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{target} has no corpus");
    let inputs: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let mut random = Random(1);

    for (file, input) in files.iter().zip(&inputs) {
        once(file, "as it is", input, run);
        for change in 0..CHANGES {
            let other = &inputs[random.below(inputs.len())];
            once(
                file,
                &format!("change {change}"),
                &changed(input, other, &mut random),
                run,
            );
        }
    }
}

/// Runs a target on an input; if it fails, prints the input.
fn once(file: &Path, how: &str, input: &[u8], run: fn(&[u8])) {
    let start = Instant::now();
    let failed = std::panic::catch_unwind(|| run(input)).is_err();
    let took = start.elapsed();
    let text = String::from_utf8_lossy(input);
    assert!(!failed, "{} ({how}) panicked on:\n{text}", file.display());
    assert!(
        took < LIMIT,
        "{} ({how}) took {took:?}:\n{text}",
        file.display()
    );
}

/// A linear congruential generator: the same changes in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end.max(1)
    }
}

/// Replacements for words.
const ODD: [&str; 16] = [
    "0",
    "-1",
    "65536",
    "4294967296",
    "1e400",
    "\"\"",
    "'*'",
    "'*.'",
    ".",
    "~",
    "null",
    "[]",
    "{}",
    "'(('",
    "99999999h",
    "\u{fffd}\u{0}",
];

/// An input with some lines removed, duplicated or taken from another input, and some words
/// replaced.
fn changed(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let text = String::from_utf8_lossy(input);
    let other = String::from_utf8_lossy(other);
    let donors: Vec<&str> = other.lines().collect();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();

    for _ in 0..=random.below(4) {
        let at = random.below(lines.len());

        match random.below(5) {
            0 => drop((!lines.is_empty()).then(|| lines.remove(at))),
            1 => lines.insert(at, lines.get(at).cloned().unwrap_or_default()),
            2 if !donors.is_empty() => {
                lines.insert(at, donors[random.below(donors.len())].to_owned())
            }
            _ => {
                let Some(line) = lines.get_mut(at) else {
                    continue;
                };

                let words: Vec<(usize, &str)> = line
                    .match_indices(|sign: char| ": ,[]{}".contains(sign))
                    .collect();
                if words.len() < 2 {
                    continue;
                }

                let from = words[random.below(words.len() - 1)].0 + 1;
                let to = words
                    .iter()
                    .map(|(at, _)| *at)
                    .find(|at| *at > from)
                    .unwrap_or(line.len());
                let odd = ODD[random.below(ODD.len())];
                line.replace_range(from..to.max(from), &format!(" {odd}"));
            }
        }
    }

    lines.join("\n").into_bytes()
}

#[test]
fn every_target_has_a_corpus_a_module_and_a_wrapper() {
    let mut modules: Vec<String> = fs::read_dir(folder("targets/src"))
        .unwrap()
        .map(|file| {
            file.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| name != "lib")
        .collect();

    modules.sort();
    let mut known = TARGETS.to_vec();
    known.sort_unstable();
    assert_eq!(modules, known, "tests/corpora/main.rs names every module");
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();

    for target in TARGETS {
        assert!(
            folder("fuzz_targets")
                .join(target)
                .with_extension("rs")
                .is_file(),
            "{target} has a wrapper"
        );
        assert!(
            manifest.contains(&format!("name = \"{target}\"")),
            "{target} is in fuzz/Cargo.toml"
        );
    }
}
