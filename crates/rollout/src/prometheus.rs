//! Queries Prometheus for the condition of a rollout.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use navarch_net::destination::AddressPolicy;
use navarch_source::{FetchError, Fetcher};
use serde_json::Value;

const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The message without a Prometheus address.
const NO_ADDRESS: &str = "NAVARCH_PROMETHEUS_URL is not set, so its query cannot be evaluated; set it, or promote the change";

#[derive(Debug)]
pub(super) struct Prometheus {
    /// Its address; `None` if it is not configured.
    address: Option<String>,
    /// Whose queries are evaluated.
    namespaces: QueryNamespaces,
    fetcher: Fetcher,
}

/// The namespaces whose objects may contain queries: a query reads all that Prometheus has, with
/// the control plane's access to it, and its result is shown to whoever wrote the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryNamespaces {
    /// `*`
    All,
    /// These.
    Only(BTreeSet<String>),
}

impl QueryNamespaces {
    /// Reads `NAVARCH_ROLLOUT_QUERY_NAMESPACES`: names separated by commas, or `*`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let names = text.split(',').map(str::trim);
        if names.clone().any(|name| name == "*") {
            return Self::All;
        }
        Self::Only(
            names
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }

    fn contain(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }
}

/// Whether the condition of a query holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Holds,
    /// The condition does not hold, and why. The value is not part of it: who wrote the query need
    /// not have the right to read what it counts.
    Fails(String),
    /// The query failed.
    Unknown(String),
}

impl Prometheus {
    /// The Prometheus at the address of `NAVARCH_PROMETHEUS_URL`.
    pub(super) fn new(address: Option<&str>, namespaces: QueryNamespaces) -> Self {
        // The operator configures the address, so loopback is allowed.
        let fetcher = Fetcher::new(AddressPolicy {
            allow_loopback: true,
            ..AddressPolicy::default()
        });
        Self {
            address: address.map(|address| address.trim_end_matches('/').to_owned()),
            namespaces,
            fetcher,
        }
    }

    /// Evaluates the query of an object in this namespace once.
    pub(super) async fn query(&self, namespace: &str, query: &str) -> Condition {
        let Some(address) = &self.address else {
            return Condition::Unknown(NO_ADDRESS.to_owned());
        };
        if !self.namespaces.contain(namespace) {
            return Condition::Unknown(format!(
                "queries of namespace {namespace} are not evaluated; an operator may add it to \
                 NAVARCH_ROLLOUT_QUERY_NAMESPACES, or promote the change"
            ));
        }

        let mut address = format!("{address}/api/v1/query?query=");

        for byte in query.bytes() {
            let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            if is_plain {
                address.push(char::from(byte))
            } else {
                _ = write!(address, "%{byte:02X}")
            }
        }

        match self.fetcher.document(&address, QUERY_TIMEOUT).await {
            Ok(text) => read(&text),
            // The address is not logged, as it may contain a secret.
            Err(FetchError::Address(_)) => {
                Condition::Unknown("NAVARCH_PROMETHEUS_URL is not an HTTP or HTTPS URL".to_owned())
            }
            Err(error) => Condition::Unknown(navarch_base::error_chain::chain(&error)),
        }
    }
}

/// The result of a Prometheus response: a vector holds unless it is empty, a scalar unless it is 0
/// or NaN.
fn read(text: &str) -> Condition {
    let unknown = |why: &str| Condition::Unknown(format!("the response of Prometheus {why}"));
    let Ok(answer) = serde_json::from_str::<Value>(text) else {
        return unknown("is not JSON");
    };

    let kind = answer.pointer("/data/resultType");
    let result = answer.pointer("/data/result");

    match (
        kind.and_then(Value::as_str),
        result.and_then(Value::as_array),
    ) {
        (Some("vector"), Some(samples)) if samples.is_empty() => {
            Condition::Fails("its result is an empty vector".to_owned())
        }
        (Some("vector"), Some(_)) => Condition::Holds,
        (Some("scalar"), Some(sample)) => {
            let value = sample.get(1).and_then(Value::as_str).unwrap_or_default();
            let holds = value
                .parse::<f64>()
                .is_ok_and(|number| number != 0.0 && !number.is_nan());
            if holds {
                Condition::Holds
            } else {
                Condition::Fails("its result is 0 or not a number".to_owned())
            }
        }
        (Some(other @ ("matrix" | "string")), _) => unknown(&format!(
            "is a {other}; the query must return a vector or a scalar"
        )),
        _ => unknown("is not a query result"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: &str, result: &str) -> Condition {
        read(&format!(
            r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#
        ))
    }

    #[test]
    fn a_vector_holds_unless_it_is_empty_and_a_scalar_unless_it_is_zero() {
        assert_eq!(
            answer("vector", r#"[{"metric":{},"value":[1,"0"]}]"#),
            Condition::Holds
        );
        assert_eq!(
            answer("vector", "[]"),
            Condition::Fails("its result is an empty vector".to_owned())
        );

        for (value, holds) in [
            ("1", true),
            ("-0.5", true),
            ("+Inf", true),
            ("0", false),
            ("NaN", false),
            ("", false),
        ] {
            assert_eq!(
                answer("scalar", &format!(r#"[1,"{value}"]"#)) == Condition::Holds,
                holds,
                "{value}"
            );
        }

        for text in ["", "{}", r#"{"status":"error","error":"x"}"#] {
            assert!(matches!(read(text), Condition::Unknown(_)), "{text}");
        }

        assert!(matches!(answer("matrix", "[]"), Condition::Unknown(_)));
    }

    #[test]
    fn a_result_does_not_contain_the_value() {
        let Condition::Fails(why) = answer("scalar", r#"[1,"NaN"]"#) else {
            panic!("it holds")
        };
        assert!(!why.contains("NaN"), "{why}");
    }

    #[tokio::test]
    async fn only_namespaces_that_an_operator_names_have_queries() {
        let answer = async |names: &str, namespace: &str| {
            // Nothing listens there: an error of the connection shows that it was tried.
            let address = Some("http://127.0.0.1:1");
            let prometheus = Prometheus::new(address, QueryNamespaces::parse(names));
            match prometheus.query(namespace, "up").await {
                Condition::Unknown(why) => why,
                other @ (Condition::Holds | Condition::Fails(_)) => panic!("{other:?}"),
            }
        };

        for (names, namespace) in [("", "evil"), ("istio-system, shop", "evil"), ("shop", "")] {
            let why = answer(names, namespace).await;
            assert!(why.contains("NAVARCH_ROLLOUT_QUERY_NAMESPACES"), "{why}");
        }
        for (names, namespace) in [("*", "evil"), ("istio-system, shop", "shop")] {
            let why = answer(names, namespace).await;
            assert!(!why.contains("NAVARCH_ROLLOUT_QUERY_NAMESPACES"), "{why}");
        }
    }

    #[tokio::test]
    async fn prometheus_errors_do_not_contain_the_address() {
        let reason = async |address: Option<&str>| {
            let prometheus = Prometheus::new(address, QueryNamespaces::All);
            let Condition::Unknown(why) = prometheus.query("shop", "up").await else {
                panic!("{address:?} answers")
            };
            why
        };
        assert!(reason(None).await.contains("NAVARCH_PROMETHEUS_URL"));
        for address in [
            "http://user:secret@127.0.0.1:1",
            "ftp://user:secret@x",
            "user:secret",
        ] {
            let why = reason(Some(address)).await;
            assert!(!why.contains("secret") && !why.is_empty(), "{why}");
        }
    }
}
