//! Panels of Grafana dashboards, evaluated on scrapes as Prometheus would select series: by name,
//! label matchers, and labels to group by.
//!
//! Rates, sums and quantiles have data if their series have, so they are not calculated. Labels
//! that Prometheus adds to scraped series (`app`, `pod`, `container`, `namespace`) are in no
//! scrape, so the selectors here omit them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;

/// A panel with its queries.
pub struct Panel {
    /// The title in Grafana.
    pub title: &'static str,
    /// Its queries, by the series that each selects.
    pub queries: &'static [Query],
}

/// The series that a query selects.
pub struct Query {
    /// A PromQL selector. A name after `$` is a variable of the dashboard.
    pub selector: &'static str,
    /// The labels that it groups by: each must have a value.
    pub by: &'static [&'static str],
}

/// A series in a scrape.
#[derive(Debug)]
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
}

/// The series of all scraped targets.
#[derive(Debug, Default)]
pub struct Scrape(Vec<Series>);

impl Scrape {
    pub fn with(mut self, page: &str) -> Result<Self> {
        for line in page
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            self.0
                .extend(series(line).with_context(|| line.to_owned())?);
        }
        Ok(self)
    }

    /// Whether a query selects a series.
    fn has(&self, query: &Query, variables: &[(&str, &str)]) -> Result<bool> {
        let mut selector = query.selector.to_owned();
        for (name, value) in variables {
            selector = selector.replace(&format!("${name}"), value);
        }

        ensure!(
            !selector.contains('$'),
            "{selector} has a variable without a value"
        );
        let (name, matchers) = parse(&selector)?;
        let found = self.0.iter().filter(|series| series.name == name);
        let text =
            |series: &Series, label: &str| series.labels.get(label).cloned().unwrap_or_default();

        let mut found = found.filter(|series| {
            matchers
                .iter()
                .all(|matcher| matcher.takes(&text(series, &matcher.label)))
        });

        Ok(found.any(|series| query.by.iter().all(|label| !text(series, label).is_empty())))
    }

    /// The queries without data, by panel; fails if a panel has no data at all.
    pub fn empty_queries<'p>(
        &self,
        panels: impl IntoIterator<Item = &'p Panel>,
        variables: &[(&str, &str)],
    ) -> Result<Vec<(&'static str, &'static str)>> {
        let mut empty = Vec::new();
        let mut silent = Vec::new();

        for panel in panels {
            let before = empty.len();
            for query in panel.queries {
                if !self.has(query, variables)? {
                    empty.push((panel.title, query.selector));
                }
            }
            if empty.len() == before + panel.queries.len() {
                silent.push(panel.title);
            }
        }

        ensure!(
            silent.is_empty(),
            "panels without data: {silent:?}\n{}",
            self.listed()
        );

        Ok(empty)
    }

    /// All series of the mesh, for error messages.
    fn listed(&self) -> String {
        let lines = self.0.iter().filter(|series| {
            !series.name.starts_with("envoy_") && !series.name.ends_with("_bucket")
        });
        lines
            .map(|series| format!("{} {:?}\n", series.name, series.labels))
            .collect()
    }
}

/// Parses a line: name, labels, number. `NaN` counts as no data.
fn series(line: &str) -> Result<Option<Series>> {
    let (head, value) = line.rsplit_once(' ').context("no value")?;
    let value: f64 = value.parse()?;
    let (name, labels) = match head.split_once('{') {
        Some((name, rest)) => (
            name,
            labels(rest.strip_suffix('}').context("labels without an end")?)?,
        ),
        None => (head, BTreeMap::new()),
    };
    Ok((!value.is_nan()).then(|| Series {
        name: name.to_owned(),
        labels,
    }))
}

/// Parses `name="value"` pairs separated by commas.
fn labels(mut text: &str) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();

    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").context("a label without a value")?;
        let mut value = String::new();
        let mut signs = rest.char_indices();
        let end = loop {
            match signs.next().context("a value without an end")? {
                (at, '"') => break at,
                (_, '\\') => match signs.next().context("a value without an end")?.1 {
                    'n' => value.push('\n'),
                    sign => value.push(sign),
                },
                (_, sign) => value.push(sign),
            }
        };

        all.insert(name.to_owned(), value);
        text = rest
            .get(end + 1..)
            .unwrap_or_default()
            .trim_start_matches(',');
    }

    Ok(all)
}

/// A matcher of a label.
struct Matcher {
    label: String,
    /// The pattern for the whole value.
    pattern: Regex,
    /// Whether the value must match, or must not.
    wanted: bool,
}

impl Matcher {
    fn takes(&self, value: &str) -> bool {
        self.pattern.is_match(value) == self.wanted
    }
}

/// Parses a selector: a name and, in braces, matchers.
fn parse(selector: &str) -> Result<(&str, Vec<Matcher>)> {
    let Some((name, rest)) = selector.split_once('{') else {
        return Ok((selector, Vec::new()));
    };

    let rest = rest
        .strip_suffix('}')
        .with_context(|| format!("{selector} has no end"))?;
    let matchers = rest
        .split("\",")
        .filter(|part| !part.trim().is_empty())
        .map(|part| {
            let (left, value) = part
                .split_once('"')
                .with_context(|| format!("{part} in {selector} has no value"))?;
            let value = value.trim_end_matches('"');
            let left = left.trim();

            for (sign, wanted, is_pattern) in [
                ("=~", true, true),
                ("!~", false, true),
                ("!=", false, false),
                ("=", true, false),
            ] {
                if let Some(label) = left.strip_suffix(sign) {
                    let text = if is_pattern {
                        value.to_owned()
                    } else {
                        regex::escape(value)
                    };
                    let pattern = Regex::new(&format!("^(?:{text})$"))?;
                    return Ok(Matcher {
                        label: label.trim().to_owned(),
                        pattern,
                        wanted,
                    });
                }
            }

            bail!("{part} in {selector} has no operator");
        });

    Ok((name, matchers.collect::<Result<_>>()?))
}

#[test]
fn a_panel_has_data_where_matchers_and_labels_fit() -> Result<()> {
    let scrape = Scrape::default()
        .with("# TYPE a counter\na{b=\"x, \\\"y\",c=\"200\"} 1\na{b=\"\",c=\"503\"} 2\nd NaN\n")?;
    let has = |selector, by| scrape.has(&Query { selector, by }, &[("v", "x.*")]);
    ensure!(
        has("a", &[])?
            && has("a{c=~\"2..\"}", &["b"])?
            && has("a{b=~\"$v\",c!~\"5..\"}", &["b", "c"])?
    );

    ensure!(
        has("a{e!=\"1\"}", &[])?,
        "an absent label equals the empty value"
    );

    for (selector, by) in [
        ("b", &[][..]),
        ("a{c=\"503\"}", &["b"]),
        ("a{c=~\"2\"}", &[]),
        ("a", &["e"]),
        ("d", &[]),
    ] {
        ensure!(!has(selector, by)?, "{selector}");
    }

    let panels = [Panel {
        title: "t",
        queries: &[
            Query {
                selector: "a",
                by: &[],
            },
            Query {
                selector: "z",
                by: &[],
            },
        ],
    }];

    ensure!(scrape.empty_queries(&panels, &[])? == [("t", "z")]);
    let silent = [Panel {
        title: "u",
        queries: &[Query {
            selector: "z",
            by: &[],
        }],
    }];

    ensure!(scrape.empty_queries(&silent, &[]).is_err());
    Ok(())
}
