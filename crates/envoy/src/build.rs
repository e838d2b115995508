//! Small constructors of wire messages that every translator uses.

use std::time::Duration;

use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::envoy_internal_address::AddressNameSpecifier;
use navarch_proto::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, EnvoyInternalAddress, SocketAddress,
    address, config_source, socket_address,
};
use prost::Message;

/// Maximum length of a Unix socket path: `sun_path` is null-terminated.
pub const MAX_UNIX_PATH: usize = 107;

/// In the Protocol Buffers wire format, as the body of a resource, without an `Any` around it.
#[must_use]
pub fn encode(message: &impl Message) -> Bytes {
    Bytes::from(message.encode_to_vec())
}

/// A duration as a Protocol Buffers message.
#[must_use]
pub fn duration(duration: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    let nanos = i32::try_from(duration.subsec_nanos()).unwrap_or_default();
    prost_types::Duration { seconds, nanos }
}

/// A TCP address and port.
#[must_use]
pub fn socket_address(ip: &str, port: u32) -> Address {
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            address: ip.to_owned(),
            port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
            ..SocketAddress::default()
        })),
    }
}

/// The address of an internal listener, with the endpoint that it leads to.
#[must_use]
pub fn internal_address(listener: &str, endpoint: &str) -> Address {
    Address {
        address: Some(address::Address::EnvoyInternalAddress(
            EnvoyInternalAddress {
                endpoint_id: endpoint.to_owned(),
                address_name_specifier: Some(AddressNameSpecifier::ServerListenerName(
                    listener.to_owned(),
                )),
            },
        )),
    }
}

/// A config source that uses the ADS stream, without an initial fetch timeout, as in Istio.
#[must_use]
pub fn ads_source() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(config_source::ConfigSourceSpecifier::Ads(
            AggregatedConfigSource {},
        )),
        initial_fetch_timeout: Some(prost_types::Duration::default()),
        resource_api_version: ApiVersion::V3.into(),
        ..ConfigSource::default()
    }
}
