//! The effective `ProxyConfig` of the proxy, and settings of HTTP in its metadata.

use navarch_api::duration::Duration;
use navarch_api::mesh::ProxyConfig;
use navarch_push::proxy::{PROXY_CONFIG, read_proxy_config};
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The effective `ProxyConfig`: that of the proxy's start (`PROXY_CONFIG` of its metadata), else
/// the mesh's default.
///
/// It reads the whole value: use it only within a [`ProxyQuery`] that derives a small value, or a
/// query that few share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EffectiveProxyConfig;

/// The idle timeout in the proxy's metadata, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IdleTimeout;

impl Query for EffectiveProxyConfig {
    type Value = ProxyConfig;

    fn compute(&self, view: &View<'_>) -> ProxyConfig {
        // Nodes with another text are rejected: `Proxy::parse`.
        let sent = view
            .proxy()
            .meta(PROXY_CONFIG)
            .and_then(|text| read_proxy_config(&text).ok());
        sent.unwrap_or_else(|| view.mesh().config.default_config.clone())
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
pub(crate) fn idle_timeout(view: &View<'_>) -> Option<prost_types::Duration> {
    let nanos = *view.derived(&IdleTimeout);
    nanos.map(|nanos| Duration::from_nanos(nanos).to_proto())
}

/// Whether HTTP/1.0 is accepted, by the mesh's settings or the proxy's metadata.
#[must_use]
pub(crate) fn accepts_http10(view: &View<'_>) -> bool {
    view.mesh().settings.http10 || view.proxy().meta("HTTP10").as_deref() == Some("1")
}
