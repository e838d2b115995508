//! Measured figures with their goals, and their table.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::results::Results;

/// One row of a result, which may have a goal.
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

/// The result of a part of a measurement.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) figures: Vec<Figure>,
    /// The values that they were computed from.
    pub(crate) detail: Value,
}

/// The figures of a measurement, and the values of each part.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    figures: Vec<Figure>,
    details: Map<String, Value>,
}

impl Figures {
    /// Adds those of a part, and prints its values.
    pub(crate) fn add(&mut self, part: &str, found: Found) {
        let Found { figures, detail } = found;
        eprintln!("{part}: {detail}");
        self.figures.extend(figures);
        self.details.insert(part.to_owned(), detail);
    }

    /// Writes `NAME.json` and `NAME.md`, and prints the latter.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn report(&self, results: &Results, name: &str) -> Result<()> {
        let Self { figures, details } = self;
        let table = table(figures);
        results.json(name, &json!({ "figures": figures, "details": details }))?;
        results.table(name, &table)?;
        print!("{table}");
        Ok(())
    }
}

/// The table of all figures in Markdown.
fn table(figures: &[Figure]) -> String {
    let rows = figures.iter().map(|figure| {
        let Figure {
            what,
            value,
            unit,
            goal,
        } = figure;
        match goal {
            Some(goal) => {
                let met = if value <= goal { "met" } else { "missed" };
                format!("| {what} | {value:.2} {unit} | {goal} {unit} | {met} |\n")
            }
            None => format!("| {what} | {value:.2} {unit} |  |  |\n"),
        }
    });
    let header = "| what | figure | goal | |\n| --- | --- | --- | --- |\n".to_owned();
    std::iter::once(header).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_without_a_goal_are_reported_and_others_met_or_missed() {
        let figures = [
            Figure::with_goal("a", 1.0, "ms", 1.0),
            Figure::with_goal("b", 1.5, "ms", 1.0),
            Figure::beside("c", 2.0, "kB"),
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
    }
}
