//! How the cost of a list grows with its length, for every list that users of a namespace can
//! write: the length is doubled, and the ratio of the costs printed. A ratio of 2 is linear, 4 is
//! quadratic.
//!
//! `cargo bench --bench growth -- FILTER [LENGTH]` measures the cases whose names contain the
//! filter.

#![expect(clippy::print_stdout, reason = "a report")]

use measure::{Cost, measure};
use navarch_tests::growth::{cases, measure};

/// The server's allocator, which is part of the cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs per measurement; the fastest counts.
const RUNS: usize = 2;

/// A duration in milliseconds.
fn millis(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The lowest cost of several runs.
fn best(case: &cases::Case, length: usize) -> Cost {
    let runs: Vec<Cost> = (0..RUNS).map(|_| measure(case, length)).collect();
    let least =
        |of: fn(&Cost) -> std::time::Duration| runs.iter().map(of).min().unwrap_or_default();
    let stats = runs.first().map(|cost| cost.stats).unwrap_or_default();
    Cost {
        read: least(|c| c.read),
        shown: least(|c| c.shown),
        edit: least(|c| c.edit),
        stats,
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let filter = arguments.first().cloned().unwrap_or_default();
    let length: Option<usize> = arguments.get(1).and_then(|length| length.parse().ok());
    println!(
        "{:<58} {:>6} {:>21} {:>21} {:>21} {:>9}",
        "list", "length", "read ms", "shown ms", "edit ms", "computed"
    );

    for case in cases::all().filter(|case| case.name.contains(&filter)) {
        let length = length.unwrap_or(case.size * 4).min(case.longest / 2);
        let one = best(case, length);
        let two = best(case, length * 2);
        let column = |of: fn(&Cost) -> std::time::Duration| {
            let one = millis(of(&one));
            let two = millis(of(&two));
            format!("{one:>7.1} {two:>8.1} x{:<4.1}", two / one.max(0.001))
        };
        let read = column(|c| c.read);

        let shown = column(|c| c.shown);
        let edit = column(|c| c.edit);
        println!(
            "{:<58} {length:>6} {read} {shown} {edit} {:>9}",
            case.name, two.stats.computed
        );
    }
}
