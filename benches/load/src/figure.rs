//! Measured figures with their goals, and their table.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// The description of the measurement.
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The maximum; `None` for figures without a goal.
    pub(crate) goal: Option<f64>,
}

impl Figure {
    /// A figure with a maximum.
    pub(crate) fn with_goal(
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        goal: f64,
    ) -> Self {
        Self {
            what: what.into(),
            value,
            unit,
            goal: Some(goal),
        }
    }

    /// A figure without a goal.
    pub(crate) fn beside(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            what: what.into(),
            value,
            unit,
            goal: None,
        }
    }
}

/// The median; of an even number of values, the upper of the two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A duration in milliseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Writes the figures with their details to `<name>.json` and `<name>.md` in a directory, and
/// returns the text of the latter.
///
/// # Errors
/// If the directory cannot be written to.
pub(crate) fn report(
    results: &Path,
    name: &str,
    figures: &[Figure],
    details: &Value,
) -> Result<String> {
    let table = table(figures);
    let report = json!({ "figures": figures, "details": details });
    fs::create_dir_all(results)?;
    fs::write(
        results.join(format!("{name}.json")),
        serde_json::to_string_pretty(&report)? + "\n",
    )?;
    fs::write(results.join(format!("{name}.md")), &table)?;
    Ok(table)
}

/// The table of all figures in Markdown.
fn table(figures: &[Figure]) -> String {
    let mut text = "| what | figure | goal | |\n| --- | --- | --- | --- |\n".to_owned();

    for Figure {
        what,
        value,
        unit,
        goal,
    } in figures
    {
        let (goal, met) = match goal {
            Some(goal) => (
                format!("{goal} {unit}"),
                if value <= goal { "met" } else { "missed" },
            ),
            None => (String::new(), ""),
        };
        writeln!(text, "| {what} | {value:.2} {unit} | {goal} | {met} |")
            .expect("writing to a string cannot fail");
    }

    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_without_a_goal_are_reported_and_others_met_or_missed() {
        let figures = [
            Figure::with_goal("a", 1.0, "ms", 1.0),
            Figure::with_goal("b", 1.5, "ms", 1.0),
            Figure::beside("c", median(vec![3.0, 1.0, 2.0]), "kB"),
        ];
        let rows: Vec<_> = table(&figures).lines().skip(2).map(str::to_owned).collect();
        assert_eq!(
            rows,
            [
                "| a | 1.00 ms | 1 ms | met |",
                "| b | 1.50 ms | 1 ms | missed |",
                "| c | 2.00 kB |  |  |"
            ]
        );
        assert!(median(Vec::new()).is_nan());
    }
}
