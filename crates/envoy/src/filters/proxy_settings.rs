//! The effective `ProxyConfig` of the proxy.

use serde_json::Value;

use navarch_api::duration::Duration;
use navarch_api::mesh::ProxyConfig;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The effective `ProxyConfig`: that of the proxy's start (`PROXY_CONFIG` of its metadata), else
/// the mesh's default.
///
/// It reads the whole value: use it only within a [`ProxyQuery`] that derives a small value, or a
/// query that few share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectiveProxyConfig;

/// The idle timeout in the proxy's metadata, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IdleTimeout;

impl Query for EffectiveProxyConfig {
    type Value = ProxyConfig;

    fn compute(&self, view: &View<'_>) -> ProxyConfig {
        let sent = view
            .proxy()
            .meta("PROXY_CONFIG")
            .and_then(|text| parse(&text));
        sent.unwrap_or_else(|| view.mesh().config.default_config.clone())
    }
}

/// Parses a `ProxyConfig` from node metadata.
fn parse(text: &str) -> Option<ProxyConfig> {
    let mut json = serde_json::from_str(text).ok()?;
    make_integers(&mut json);
    serde_json::from_value(json).ok()
}

/// Converts whole numbers to integers: on the wire all numbers of a `google.protobuf.Struct` are
/// doubles.
fn make_integers(json: &mut Value) {
    match json {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|value| value.fract() == 0.0)
                && let Ok(whole) = format!("{whole:.0}").parse::<i64>()
            {
                *number = whole.into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_integers),
        Value::Object(fields) => fields.values_mut().for_each(make_integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

impl Query for IdleTimeout {
    type Value = Option<i64>;

    fn compute(&self, view: &View<'_>) -> Option<i64> {
        let text = view.proxy().meta("IDLE_TIMEOUT")?;
        Duration::parse(&text).ok().map(Duration::as_nanos)
    }
}

impl ProxyQuery for IdleTimeout {}

/// The idle timeout of connections from the proxy's metadata; `None` if absent or invalid.
#[must_use]
pub fn idle_timeout(view: &View<'_>) -> Option<prost_types::Duration> {
    let nanos = *view.derived(&IdleTimeout);
    nanos.map(|nanos| Duration::from_nanos(nanos).to_proto())
}

/// Whether HTTP/1.0 is accepted, by the mesh's settings or the proxy's metadata.
#[must_use]
pub fn accepts_http10(view: &View<'_>) -> bool {
    view.mesh().settings.http10 || view.proxy().meta("HTTP10").as_deref() == Some("1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_became_doubles_on_the_wire_are_read() {
        let config = parse(r#"{"statusPort": 15020.0, "tracing": {"sampling": 12.5}}"#).unwrap();
        assert_eq!(config.status_port, 15020);
        assert_eq!(
            config.tracing.unwrap().sampling.to_bits(),
            12.5_f64.to_bits()
        );
    }
}
