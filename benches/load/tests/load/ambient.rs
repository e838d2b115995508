//! The figures of ambient mode.

use navarch_testkit::skip::skip;
use serde_json::Value;

use crate::measure;

#[test]
fn every_figure_of_ambient_mode_is_measured() {
    if let Err(error) = navarch_testkit::cluster::programs() {
        return skip(&format!("{error:#}"));
    }

    let small = [
        ("--start-services", "20"),
        ("--cold-services", "20"),
        ("--runs", "1"),
        ("--services", "100"),
        ("--policy-services", "20"),
        ("--policies", "10"),
        ("--burst", "50"),
        ("--ztunnels", "3"),
        ("--added", "2"),
    ];
    let measured = match measure("ambient", &small) {
        Ok(measured) => measured,
        Err(reason) => return skip(&reason),
    };

    let figures = measured.figures();
    assert_eq!(figures.len(), 22, "{figures:?}");
    assert!(
        figures.iter().all(|figure| figure["value"].is_number()),
        "{figures:?}"
    );

    // This figure is counted, not timed: a ztunnel that reconnects with its versions must not
    // receive those resources again.
    let is_share = |figure: &&Value| {
        let what = figure["what"].as_str();
        what.is_some_and(|what| what.contains("of those of"))
    };
    let share = figures.iter().find(is_share).unwrap()["value"]
        .as_f64()
        .unwrap();
    assert!(share < 1.0, "{share} % of the bytes are sent again");
    assert_eq!(measured.table, measured.file("ambient.md"));
}
