//! Merges the proxies of all replicas into one list: each replica lists its own only.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(super) const LIST_PATH: &str = "/debug/view/proxies";
/// Pages about one proxy, which are served by its replica.
const PROXY_PAGES: [&str; 4] = [
    "/debug/view/resources",
    "/debug/why/proxy",
    "/debug/why/push",
    "/debug/why/not",
];
/// Maximum number of rows in a response of a replica, and the default for merged responses.
pub(super) const MAX_ROWS: usize = 200;
const DEFAULT_ROWS: usize = 50;
/// Maximum number of rows read from a replica for one response; filters select among more.
pub(super) const MAX_OFFSET: usize = 2_000;

/// The requested rows and filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowQuery {
    offset: usize,
    limit: usize,
    /// All other parameters, unchanged.
    chosen: String,
}

/// Some rows of one replica, and the numbers of all of its proxies.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProxyRows {
    pub(super) total: usize,
    counts: BTreeMap<String, u64>,
    kinds: BTreeMap<String, u64>,
    rows: Vec<Map<String, Value>>,
}

/// The response of one replica, or its error.
pub(super) type ReplicaRows = (String, Result<Vec<ProxyRows>, String>);

/// Whether a page is about one proxy.
pub(super) fn is_of_one(path: &str) -> bool {
    PROXY_PAGES.contains(&path)
}

impl RowQuery {
    /// Parses the query of a request.
    pub(super) fn read(query: &str) -> Self {
        let mut offset = 0;
        let mut limit = DEFAULT_ROWS;
        let mut chosen = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("offset", text)) => offset = text.parse().unwrap_or_default(),
                Some(("limit", text)) => limit = text.parse().unwrap_or(DEFAULT_ROWS),
                Some(_) | None => chosen.push(parameter),
            }
        }
        let limit = limit.clamp(1, MAX_ROWS);
        Self {
            offset: offset.min(MAX_OFFSET - MAX_ROWS),
            limit,
            chosen: chosen.join("&"),
        }
    }

    /// Number of rows of each replica that can be among the requested ones.
    pub(super) fn depth(&self) -> usize {
        self.offset + self.limit
    }

    /// The path that requests a replica's rows from an offset on.
    pub(super) fn path(&self, from: usize) -> String {
        let limit = (self.depth() - from).min(MAX_ROWS);
        let more = if self.chosen.is_empty() {
            String::new()
        } else {
            format!("&{}", self.chosen)
        };
        format!("{LIST_PATH}?offset={from}&limit={limit}{more}")
    }

    /// Merges the responses of replicas: numbers are added, and rows are merged in order, each with
    /// its replica.
    pub(super) fn merged(&self, responses: Vec<ReplicaRows>) -> Value {
        let mut counts = BTreeMap::new();
        let mut kinds = BTreeMap::new();
        let mut total = 0;
        let mut rows = Vec::new();
        let mut replicas = Vec::new();

        for (name, answer) in responses {
            let parts = match answer {
                Ok(parts) => parts,
                Err(error) => {
                    replicas.push(json!({ "name": name, "error": error }));
                    continue;
                }
            };

            if let Some(first) = parts.first() {
                add(&mut counts, &first.counts);
                add(&mut kinds, &first.kinds);
                total += first.total;
                replicas.push(json!({ "name": name, "proxies": first.counts.get("all") }));
            }

            for mut row in parts.into_iter().flat_map(|part| part.rows) {
                row.insert("replica".to_owned(), json!(name));
                rows.push(row);
            }
        }

        rows.sort_by_cached_key(order);
        let rows: Vec<_> = rows
            .into_iter()
            .skip(self.offset)
            .take(self.limit)
            .collect();

        json!({
            "total": total, "offset": self.offset, "limit": self.limit, "rows": rows, "counts": counts, "kinds": kinds,
            "replicas": replicas,
        })
    }
}

/// Adds numbers by name.
fn add(all: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, number) in more {
        *all.entry(name.clone()).or_default() += number;
    }
}

/// The sort key of a row, the same as in replicas: worst first, then by name.
fn order(row: &Map<String, Value>) -> (u8, String, String) {
    let text = |name: &str| {
        row.get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let standing = match row.get("state").and_then(Value::as_str) {
        Some("refused") => 0,
        Some("lagging") => 1,
        Some(_) | None => 2,
    };
    (standing, text("proxy"), text("id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with rows of these states and names.
    fn part(all: u64, rows: &[(&str, &str)]) -> ProxyRows {
        let rows: Vec<Value> = rows
            .iter()
            .map(
                |(state, name)| json!({ "state": state, "proxy": name, "id": format!("{name}-1") }),
            )
            .collect();
        let part = json!({ "total": all, "counts": { "all": all, "refused": 1 }, "kinds": { "sidecar": all }, "rows": rows });
        serde_json::from_value(part).unwrap()
    }

    #[test]
    fn rows_of_all_replicas_are_sorted_and_totals_added() {
        let responses = vec![
            (
                "a".to_owned(),
                Ok(vec![part(2, &[("refused", "web-2"), ("synced", "web-1")])]),
            ),
            (
                "b".to_owned(),
                Ok(vec![
                    part(3, &[("refused", "web-0")]),
                    part(3, &[("lagging", "web-4"), ("synced", "web-3")]),
                ]),
            ),
            ("c".to_owned(), Err("does not answer".to_owned())),
        ];

        let all = RowQuery::read("limit=3&offset=1&filter=web").merged(responses);
        let names: Vec<_> = all["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (&row["proxy"], &row["replica"]))
            .collect();

        let expected = [("web-2", "a"), ("web-4", "b"), ("web-1", "a")]
            .map(|(name, replica)| (json!(name), json!(replica)));
        assert_eq!(
            names,
            expected.each_ref().map(|(name, replica)| (name, replica))
        );
        assert_eq!(
            (
                &all["total"],
                &all["counts"]["all"],
                &all["kinds"]["sidecar"]
            ),
            (&json!(5), &json!(5), &json!(5))
        );

        assert_eq!(all["replicas"][1], json!({ "name": "b", "proxies": 3 }));
        assert_eq!(
            all["replicas"][2],
            json!({ "name": "c", "error": "does not answer" })
        );
    }

    #[test]
    fn replicas_are_queried_only_for_visible_rows() {
        let wanted = RowQuery::read("filter=a%20b&offset=190&limit=50&state=");
        assert_eq!(
            wanted.path(0),
            "/debug/view/proxies?offset=0&limit=200&filter=a%20b&state="
        );
        assert_eq!(
            wanted.path(200),
            "/debug/view/proxies?offset=200&limit=40&filter=a%20b&state="
        );
        let deep = RowQuery::read("offset=99999999999&limit=100000");
        assert_eq!(
            (deep.depth(), RowQuery::read("").depth()),
            (MAX_OFFSET, DEFAULT_ROWS)
        );
    }
}
