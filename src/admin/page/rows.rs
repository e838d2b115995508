//! Pages of a long list: a response has at most a screen or two of rows, however large the mesh.

use serde_json::{Value, json};

use crate::admin::reply::Parameters;

const DEFAULT_ROWS: usize = 50;
/// Maximum number of rows.
const MAX_ROWS: usize = 200;

/// The requested rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Number of skipped rows.
    offset: usize,
    /// Number of shown rows.
    limit: usize,
}

impl Rows {
    /// Parses the parameters `offset` and `limit`.
    pub(super) fn from_parameters(parameters: &Parameters) -> Self {
        let number = |name: &str| {
            parameters
                .get(name)
                .and_then(|text| text.parse::<usize>().ok())
        };
        Self {
            offset: number("offset").unwrap_or_default(),
            limit: number("limit").unwrap_or(DEFAULT_ROWS).clamp(1, MAX_ROWS),
        }
    }

    /// Selects these of all rows.
    pub(super) fn of<T>(self, all: impl IntoIterator<Item = T>) -> Vec<T> {
        all.into_iter().skip(self.offset).take(self.limit).collect()
    }

    /// The response: the rows, and their position among all.
    pub(super) fn answer(self, total: usize, rows: &[Value]) -> Value {
        json!({ "total": total, "offset": self.offset, "limit": self.limit, "rows": rows })
    }
}

/// Whether each word of the parameter `filter` is in one of these texts, ignoring case.
pub(super) fn fits(parameters: &Parameters, texts: &[&str]) -> bool {
    let Some(filter) = parameters.get("filter") else {
        return true;
    };
    let texts: Vec<String> = texts.iter().map(|text| text.to_lowercase()).collect();
    filter
        .to_lowercase()
        .split_whitespace()
        .all(|word| texts.iter().any(|text| text.contains(word)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn parameters(all: &[(&str, &str)]) -> Parameters {
        let all: HashMap<String, String> = all
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        axum::extract::Query(all)
    }

    #[test]
    fn responses_have_at_most_a_few_hundred_rows() {
        let rows = Rows::from_parameters(&parameters(&[("limit", "100000"), ("offset", "10")]));
        assert_eq!(rows.of(0..1000), (10..210).collect::<Vec<_>>());
        assert_eq!(
            Rows::from_parameters(&parameters(&[("limit", "no"), ("offset", "-1")]))
                .of(0..1000)
                .len(),
            DEFAULT_ROWS
        );
        assert_eq!(
            Rows::from_parameters(&parameters(&[("offset", "18446744073709551615")])).of(0..10),
            Vec::<i32>::new()
        );
    }

    #[test]
    fn a_row_must_match_every_word_of_the_filter() {
        assert!(fits(
            &parameters(&[("filter", "WEB shop")]),
            &["web-1", "bookshop"]
        ));
        assert!(!fits(
            &parameters(&[("filter", "web bank")]),
            &["web-1", "bookshop"]
        ));
        assert!(fits(&parameters(&[]), &[]));
    }
}
