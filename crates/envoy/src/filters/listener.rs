//! Listener filters, which inspect a connection before a filter chain is selected.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::listener::v3::{ListenerFilter, listener_filter};
use navarch_proto::envoy::extensions::filters::listener::http_inspector::v3::HttpInspector;
use navarch_proto::envoy::extensions::filters::listener::original_dst::v3::OriginalDst;
use navarch_proto::envoy::extensions::filters::listener::original_src::v3::OriginalSrc;
use navarch_proto::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol;
use navarch_proto::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use prost::{Message, Name};

/// Initial read size of the TLS inspector: Envoy's default of 64 KiB is more than any handshake
/// needs.
const TLS_FIRST_READ: u32 = 512;

/// The iptables mark of connections that the proxy opened with the client's address.
const TPROXY_MARK: u32 = 1337;

/// A listener filter with this name and configuration.
fn filter<M: Message + Name>(name: &str, config: &M) -> ListenerFilter {
    ListenerFilter {
        name: name.to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(pack(config))),
        ..ListenerFilter::default()
    }
}

/// Detects TLS, and reads SNI and ALPN.
#[must_use]
pub fn tls_inspector() -> ListenerFilter {
    let config = TlsInspector {
        initial_read_buffer_size: Some(TLS_FIRST_READ),
        ..TlsInspector::default()
    };
    filter("envoy.filters.listener.tls_inspector", &config)
}

/// Detects HTTP and its version.
#[must_use]
pub fn http_inspector() -> ListenerFilter {
    filter("envoy.filters.listener.http_inspector", &HttpInspector {})
}

/// Restores the original destination, which iptables replaced.
#[must_use]
pub fn original_destination() -> ListenerFilter {
    filter("envoy.filters.listener.original_dst", &OriginalDst {})
}

/// Uses the client's own address upstream.
#[must_use]
pub fn original_source() -> ListenerFilter {
    filter(
        "envoy.filters.listener.original_src",
        &OriginalSrc {
            mark: TPROXY_MARK,
            ..OriginalSrc::default()
        },
    )
}

/// Parses and removes the PROXY header.
#[must_use]
pub fn proxy_protocol() -> ListenerFilter {
    filter(
        "envoy.filters.listener.proxy_protocol",
        &ProxyProtocol::default(),
    )
}
