//! Who sends what, what must become of it, and what has become of it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::pod::PORT;

/// The host of the service that moves.
pub(super) const HOST: &str = "web.shop.svc.cluster.local";
/// How long a caller sends requests at most: far above what 100,000 requests take.
const MAX_MILLIS: u64 = 20 * 60 * 1000;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The pod that sends it.
    pub(super) caller: &'static str,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
}

/// What must become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// A response with this status, of the application (200) or of a route.
    Status(u16),
    /// A policy refuses it.
    Refused,
}

impl Request {
    pub(super) const fn new(
        caller: &'static str,
        method: &'static str,
        path: &'static str,
    ) -> Self {
        Self {
            caller,
            method,
            path,
        }
    }

    /// The destination as `navarch why not` takes it.
    pub(super) fn destination(&self) -> String {
        format!("{HOST}:{PORT}{}", self.path)
    }
}

impl Expected {
    /// The verdict of an answer of `navarch why not`.
    ///
    /// # Errors
    /// If it depends on something that the control plane does not know.
    pub(super) fn of(answer: &Value) -> Result<Self> {
        let unknown = answer["unknown"].as_array().context("an answer")?;
        let Some(reason) = answer["reason"].as_str() else {
            ensure!(unknown.is_empty(), "not known: {answer}");
            return Ok(Self::Status(200));
        };
        let of_route = reason
            .strip_prefix("the proxy responds with ")
            .and_then(|rest| rest.strip_suffix(" itself"));
        match of_route {
            Some(status) => Ok(Self::Status(status.parse()?)),
            None => Ok(Self::Refused),
        }
    }
}

/// The command for the application of a caller: its requests in turn, at least `count`, and as long
/// as a file exists.
pub(super) fn order(
    caller: &str,
    expected: &[(Request, Expected)],
    count: u64,
    goes_on: &Path,
) -> Value {
    let own = expected
        .iter()
        .filter(|(request, _)| request.caller == caller);
    let requests: Vec<Value> = own
        .map(|(request, expected)| {
            let expected = match expected {
                Expected::Status(status) => json!(status),
                Expected::Refused => json!("refused"),
            };
            json!({
                "host": HOST, "method": request.method, "path": request.path, "expected": expected,
            })
        })
        .collect();
    json!({
        "op": "mix", "requests": requests, "count": count, "while": goes_on, "millis": MAX_MILLIS,
    })
}

/// What has become of requests.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) total: u64,
    /// Those that were lost or had another verdict, some of them.
    pub(super) other: Vec<Value>,
}

impl Sent {
    /// Adds the result of a caller.
    pub(super) fn add(&mut self, outcome: &Value) -> Result<()> {
        let count = |key: &str| {
            let count = outcome[key].as_u64();
            count.with_context(|| format!("no count: {outcome}"))
        };
        let failed = count("failed")?;
        self.total += count("ok")? + failed;
        if failed > 0 {
            self.other.push(outcome.clone());
        }
        Ok(())
    }
}
