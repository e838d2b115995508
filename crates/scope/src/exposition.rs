//! The text format of Prometheus, as far as counters and gauges need it.
//!
//! Agrees with `expfmt/text_parse.go` of prometheus/common for lines of the wanted metrics; of all
//! other lines only the name is read. A malformed line is reported, and the others are read.

use std::collections::BTreeMap;

use thiserror::Error;

/// The longest line of a wanted metric, in bytes: Istio's metrics have two dozen labels.
const MAX_LINE: usize = 16 << 10;
/// The maximum number of labels of a series.
const MAX_LABELS: usize = 64;
/// The longest name or value of a label, in bytes. Host names have at most 253.
const MAX_LABEL: usize = 1024;
/// How many malformed lines are reported with their reason.
const MAX_REPORTED: usize = 20;

/// One line: a metric with its labels, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name of the metric.
    pub metric: String,
    /// The labels without escapes. Of a repeated one the last counts.
    pub labels: BTreeMap<String, String>,
    /// Not negative, and not NaN.
    pub value: f64,
}

impl Series {
    /// The value of a label; empty if it is absent.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Why a line is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// It exceeds `MAX_LINE`.
    #[error("the line is longer than {MAX_LINE} bytes")]
    TooLong,
    /// It has more than `MAX_LABELS` labels.
    #[error("it has more than {MAX_LABELS} labels")]
    TooManyLabels,
    /// A label exceeds `MAX_LABEL`.
    #[error("a label is longer than {MAX_LABEL} bytes")]
    LongLabel,
    /// A label has no name, or none that may be one.
    #[error("a label has no valid name")]
    LabelName,
    /// A value of a label is not in quotation marks, or they are not closed.
    #[error("the value of a label is not in quotation marks")]
    Quotes,
    /// A backslash is followed by something else than `\`, `"` or `n`.
    #[error("the value of a label has an unknown escape")]
    Escape,
    /// Labels are not separated by commas, or not closed.
    #[error("the labels are not closed by }}")]
    Unclosed,
    /// There is no number behind the labels, or a negative one.
    #[error("its value is not a number from 0 on")]
    Value,
}

/// A line that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedLine {
    /// From 1.
    pub number: usize,
    /// What is wrong.
    pub reason: LineError,
}

/// The malformed lines of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Malformed {
    /// The first ones.
    pub first: Vec<MalformedLine>,
    /// The number of all.
    pub count: usize,
}

impl Malformed {
    fn add(&mut self, number: usize, reason: LineError) {
        self.count += 1;
        if self.first.len() < MAX_REPORTED {
            self.first.push(MalformedLine { number, reason });
        }
    }
}

/// Passes each series of the wanted metrics to `take`, and returns the malformed lines of them.
pub fn read(text: &str, wanted: &[&str], mut take: impl FnMut(Series)) -> Malformed {
    let mut malformed = Malformed::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let end = line
            .find(|sign: char| sign == '{' || sign.is_whitespace())
            .unwrap_or(line.len());
        let (metric, rest) = line.split_at(end);
        if !wanted.contains(&metric) {
            continue;
        }

        match series(metric, rest) {
            Ok(series) => take(series),
            Err(reason) => malformed.add(index + 1, reason),
        }
    }
    malformed
}

/// Parses what follows the name of a metric.
fn series(metric: &str, rest: &str) -> Result<Series, LineError> {
    if rest.len() > MAX_LINE {
        return Err(LineError::TooLong);
    }

    let mut text = LineText { rest };
    let labels = text.labels()?;
    Ok(Series {
        metric: metric.to_owned(),
        labels,
        value: text.value()?,
    })
}

/// The part of a line that is not read yet.
struct LineText<'a> {
    rest: &'a str,
}

impl LineText<'_> {
    /// Skips white space.
    fn trim(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Skips a sign, if it is next.
    fn take(&mut self, sign: char) -> bool {
        self.trim();
        let after = self.rest.strip_prefix(sign);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// The labels, which may be absent.
    fn labels(&mut self) -> Result<BTreeMap<String, String>, LineError> {
        let mut labels = BTreeMap::new();
        if !self.take('{') {
            return Ok(labels);
        }

        while !self.take('}') {
            if labels.len() >= MAX_LABELS {
                return Err(LineError::TooManyLabels);
            }
            let name = self.name()?;
            let value = self.quoted()?;
            labels.insert(name, value);

            if !self.take(',') && !self.rest.starts_with('}') {
                return Err(LineError::Unclosed);
            }
        }

        Ok(labels)
    }

    /// The name of a label, and the equals sign behind it.
    fn name(&mut self) -> Result<String, LineError> {
        self.trim();
        let end = self
            .rest
            .find(|sign: char| !(sign.is_ascii_alphanumeric() || matches!(sign, '_' | ':' | '.')))
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() {
            return Err(LineError::LabelName);
        }
        if name.len() > MAX_LABEL {
            return Err(LineError::LongLabel);
        }

        let name = name.to_owned();
        self.rest = rest;
        if self.take('=') {
            Ok(name)
        } else {
            Err(LineError::LabelName)
        }
    }

    /// A value in quotation marks, without its escapes.
    fn quoted(&mut self) -> Result<String, LineError> {
        if !self.take('"') {
            return Err(LineError::Quotes);
        }

        let mut value = String::new();
        let mut signs = self.rest.char_indices();
        while let Some((at, sign)) = signs.next() {
            let plain = match sign {
                '"' => {
                    self.rest = self.rest.get(at + 1..).unwrap_or_default();
                    return Ok(value);
                }
                '\\' => match signs.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, sign @ ('\\' | '"'))) => sign,
                    _ => return Err(LineError::Escape),
                },
                other => other,
            };
            value.push(plain);
            if value.len() > MAX_LABEL {
                return Err(LineError::LongLabel);
            }
        }

        Err(LineError::Quotes)
    }

    /// The value; a time or an exemplar may follow it.
    fn value(&mut self) -> Result<f64, LineError> {
        let word = self.rest.split_whitespace().next();
        let value = word.and_then(|word| word.parse::<f64>().ok());
        value
            .filter(|value| value.is_finite() && *value >= 0.0)
            .ok_or(LineError::Value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const METRIC: &str = "istio_requests_total";

    fn all(text: &str) -> (Vec<Series>, Malformed) {
        let mut found = Vec::new();
        let malformed = read(text, &[METRIC], |series| found.push(series));
        (found, malformed)
    }

    #[test]
    fn labels_are_read_without_their_escapes() {
        let text = r#"# HELP istio_requests_total Requests that the proxy handled
# TYPE istio_requests_total counter
istio_requests_total{a="b\\c \"d\"\ne", empty="",utf="ü"} 3 1700000000000
istio_requests_total 4 # {trace="x"} 1
istio_requests_total{} 1e3
other{a="never looked at 5
"#;
        let (found, malformed) = all(text);
        assert_eq!(malformed, Malformed::default());
        let values: Vec<f64> = found.iter().map(|series| series.value).collect();
        assert_eq!(values, [3.0, 4.0, 1000.0]);

        let labels = &found[0].labels;
        assert_eq!(labels["a"], "b\\c \"d\"\ne");
        assert_eq!(labels["empty"], "");
        assert_eq!(labels["utf"], "ü");
    }

    #[test]
    fn a_malformed_line_is_named_and_the_others_are_read() {
        for (line, reason) in [
            (r#"{a="b} 1"#, LineError::Quotes),
            (r"{a=b} 1", LineError::Quotes),
            (r#"{a="\x"} 1"#, LineError::Escape),
            (r#"{="b"} 1"#, LineError::LabelName),
            (r#"{a "b"} 1"#, LineError::LabelName),
            (r#"{a="b" c="d"} 1"#, LineError::Unclosed),
            (r#"{a="b""#, LineError::Unclosed),
            (r#"{a="b"}"#, LineError::Value),
            (r#"{a="b"} -1"#, LineError::Value),
            (r#"{a="b"} NaN"#, LineError::Value),
            (r#"{a="b"} +Inf"#, LineError::Value),
        ] {
            let text = format!("{METRIC} 1\n{METRIC}{line}\n{METRIC} 2\n");
            let (found, malformed) = all(&text);
            assert_eq!(found.len(), 2, "{line}");
            let expected = MalformedLine { number: 2, reason };
            assert_eq!(malformed.first, [expected], "{line}");
        }
    }

    #[test]
    fn lines_and_labels_are_bounded() {
        let reason = |line: String| all(&line).1.first[0].reason;
        let long = "x".repeat(MAX_LABEL + 1);
        assert_eq!(
            reason(format!("{METRIC}{{a=\"{long}\"}} 1")),
            LineError::LongLabel
        );
        let endless = "x".repeat(MAX_LINE);
        assert_eq!(
            reason(format!("{METRIC}{{a=\"{endless}\"}} 1")),
            LineError::TooLong
        );
        let many: String = (0..=MAX_LABELS).map(|at| format!("a{at}=\"\",")).collect();
        assert_eq!(
            reason(format!("{METRIC}{{{many}}} 1")),
            LineError::TooManyLabels
        );

        let lines = format!("{METRIC} x\n").repeat(MAX_REPORTED + 5);
        let malformed = all(&lines).1;
        assert_eq!(malformed.first.len(), MAX_REPORTED);
        assert_eq!(malformed.count, MAX_REPORTED + 5);
    }

    proptest! {
        #[test]
        fn labels_are_read_as_they_were_written_whatever_the_next_line_is(
            values in vec(any::<String>(), 0..5),
            next in any::<String>(),
        ) {
            let mut written = String::new();
            let mut labels = BTreeMap::new();
            for (at, value) in values.into_iter().enumerate() {
                let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
                let escaped = escaped.replace('\n', "\\n");
                written.push_str(&format!("l{at}=\"{escaped}\","));
                labels.insert(format!("l{at}"), value);
            }

            let text = format!("{METRIC}{{{written}}} 1\n{METRIC}{next}\n{METRIC} 2");
            let (found, _) = all(&text);
            prop_assert_eq!(&found.first().unwrap().labels, &labels);
            prop_assert!((found.last().unwrap().value - 2.0).abs() < f64::EPSILON);
        }
    }
}
