//! The figures of `navarch plan`, `navarch applied`, the history of pushes and the record.

use navarch_testkit::skip::skip;

use crate::{measure, run};

#[test]
fn every_figure_of_answers_is_measured() {
    let small = [
        ("--plan-services", "20"),
        ("--plan-proxies", "12"),
        ("--plans", "1"),
        ("--applied-proxies", "20"),
        ("--asks", "1"),
        ("--services", "20"),
        ("--churn-proxies", "10"),
        ("--churn-seconds", "3"),
        ("--rounds", "1"),
    ];
    let measured = match measure("answers", &small) {
        Ok(measured) => measured,
        Err(reason) => return skip(&reason),
    };

    let figures = measured.figures();
    let goals: Vec<_> = figures
        .iter()
        .filter(|figure| figure["goal"].is_number())
        .collect();
    assert_eq!((figures.len(), goals.len()), (11, 6), "{figures:?}");

    assert!(
        figures.iter().all(|figure| figure["value"].is_number()),
        "{figures:?}"
    );
    let steps = &measured.report["details"]["plan"]["steps_ms"];
    for step in ["copy", "apply", "traffic", "encode"] {
        assert!(steps[step].is_number(), "{step}: {steps}");
    }

    // This figure is counted, not timed: a history holds up to 20 responses.
    let history = figures
        .iter()
        .find(|figure| figure["unit"] == "bytes")
        .unwrap()["value"]
        .as_f64()
        .unwrap();

    assert!((500.0..=2000.0).contains(&history), "{history} bytes");
    let table = measured.file("answers.md");
    assert_eq!(table.lines().count(), 2 + figures.len(), "{table}");
    assert_eq!(measured.table, table);
}

#[test]
fn it_fails_if_nothing_can_be_measured() {
    let results = tempfile::tempdir().unwrap();
    let nothing = results.path().join("no-such-program");
    let output = run("answers", &nothing, results.path(), &[]);
    assert!(
        !output.status.success() && !results.path().join("answers.json").exists(),
        "{output:?}"
    );
}
