//! Values from the metrics of a control plane.

use anyhow::{Context, Result};
use navarch_testkit::navarch::Navarch;

/// The value of a metric without labels.
///
/// # Errors
/// If the metrics cannot be read, or the metric is not among them.
pub(crate) async fn value(navarch: &Navarch, name: &str) -> Result<f64> {
    value_in(&navarch.metrics().await?, name)
}

/// The sum of all values of some metrics, whatever their labels are.
///
/// # Errors
/// If the metrics cannot be read.
pub(crate) async fn sum(navarch: &Navarch, names: &[&str]) -> Result<f64> {
    sum_in(&navarch.metrics().await?, names)
}

/// As [`value`], from the text of the metrics.
fn value_in(metrics: &str, name: &str) -> Result<f64> {
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.with_context(|| format!("{name} is not among the metrics"))?
        .parse()
        .with_context(|| format!("the value of {name} is not a number"))
}

/// As [`sum`], from the text of the metrics.
fn sum_in(metrics: &str, names: &[&str]) -> Result<f64> {
    let lines = metrics
        .lines()
        .filter(|line| names.iter().any(|name| line.starts_with(name)));
    let values = lines.map(|line| {
        line.rsplit(' ')
            .next()
            .and_then(|value| value.parse::<f64>().ok())
            .with_context(|| format!("{line:?} does not end with a number"))
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics with and without labels, one of which has a longer name.
    const METRICS: &str = "# TYPE services gauge\nservices_total 9\nservices 12\n\
                           sent_sum{type=\"cds\"} 1.5\nsent_sum{type=\"eds\"} 2\nsent_count 4\n";

    #[test]
    fn values_are_found_by_their_whole_name() {
        assert_eq!(value_in(METRICS, "services").unwrap(), 12.0);
        let missing = value_in(METRICS, "service").unwrap_err();
        assert!(missing.to_string().contains("service is not"), "{missing}");
    }

    #[test]
    fn values_of_all_labels_are_added() {
        assert_eq!(sum_in(METRICS, &["sent_sum", "services "]).unwrap(), 15.5);
        assert!(sum_in("sent_sum ?", &["sent_sum"]).is_err());
    }
}
