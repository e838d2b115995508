//! Access log messages, with the fields that are used.
//!
//! Texts are bytes: some were sent by clients and need not be UTF-8, and an invalid one must not
//! discard other entries. Fields that are not declared here are skipped without a copy.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use navarch_proto::envoy::data::accesslog::v3::{ConnectionProperties, ResponseFlags};
use prost_types::Any;

/// Texts by name.
pub(super) type Texts = BTreeMap<String, Vec<u8>>;

/// `envoy.service.accesslog.v3.StreamAccessLogsMessage`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LogMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) identifier: Option<Identifier>,
    #[prost(message, optional, tag = "2")]
    pub(super) http_logs: Option<HttpEntries>,
    #[prost(message, optional, tag = "3")]
    pub(super) tcp_logs: Option<TcpEntries>,
}

/// Identifies the log of a stream.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Identifier {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) log_name: Bytes,
}

/// Requests.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpEntries {
    #[prost(message, repeated, tag = "1")]
    pub(super) log_entry: Vec<HttpEntry>,
}

/// Connections.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TcpEntries {
    #[prost(message, repeated, tag = "1")]
    pub(super) log_entry: Vec<TcpEntry>,
}

/// `envoy.data.accesslog.v3.HTTPAccessLogEntry`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpEntry {
    #[prost(message, optional, tag = "1")]
    pub(super) common_properties: Option<Common>,
    #[prost(message, optional, tag = "3")]
    pub(super) request: Option<HttpRequest>,
    #[prost(message, optional, tag = "4")]
    pub(super) response: Option<HttpResponse>,
}

/// `envoy.data.accesslog.v3.TCPAccessLogEntry`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TcpEntry {
    #[prost(message, optional, tag = "1")]
    pub(super) common_properties: Option<Common>,
    #[prost(message, optional, tag = "2")]
    pub(super) connection_properties: Option<ConnectionProperties>,
}

/// `envoy.data.accesslog.v3.AccessLogCommon`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Common {
    #[prost(message, optional, tag = "2")]
    pub(super) downstream_remote_address: Option<Address>,
    #[prost(message, optional, tag = "4")]
    pub(super) tls_properties: Option<Tls>,
    #[prost(bytes = "bytes", tag = "15")]
    pub(super) upstream_cluster: Bytes,
    #[prost(message, optional, tag = "16")]
    pub(super) response_flags: Option<ResponseFlags>,
    #[prost(message, optional, tag = "17")]
    pub(super) metadata: Option<Metadata>,
    #[prost(bytes = "bytes", tag = "19")]
    pub(super) route_name: Bytes,
    #[prost(message, optional, tag = "20")]
    pub(super) downstream_direct_remote_address: Option<Address>,
    #[prost(btree_map = "string, message", tag = "21")]
    pub(super) filter_state_objects: BTreeMap<String, Any>,
    #[prost(btree_map = "string, bytes", tag = "22")]
    pub(super) custom_tags: Texts,
    #[prost(message, optional, tag = "23")]
    pub(super) duration: Option<prost_types::Duration>,
    #[prost(bytes = "bytes", tag = "26")]
    pub(super) stream_id: Bytes,
    #[prost(uint64, tag = "29")]
    pub(super) downstream_wire_bytes_sent: u64,
    #[prost(uint64, tag = "30")]
    pub(super) downstream_wire_bytes_received: u64,
    #[prost(int32, tag = "33")]
    pub(super) access_log_type: i32,
}

/// The client's address.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SocketAddress {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) address: Bytes,
}

/// Dynamic metadata; each namespace is a `google.protobuf.Struct`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Metadata {
    #[prost(btree_map = "string, bytes", tag = "1")]
    pub(super) filter_metadata: Texts,
}

/// The TLS properties of the client's connection.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Tls {
    #[prost(message, optional, tag = "4")]
    pub(super) local_certificate_properties: Option<Certificate>,
    #[prost(message, optional, tag = "5")]
    pub(super) peer_certificate_properties: Option<Certificate>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Certificate {
    #[prost(message, repeated, tag = "1")]
    pub(super) subject_alt_name: Vec<AlternativeName>,
}

/// A subject alternative name; empty if it is not a URI.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AlternativeName {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) uri: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpRequest {
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) authority: Bytes,
    #[prost(btree_map = "string, bytes", tag = "13")]
    pub(super) request_headers: Texts,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) response_code: Option<u32>,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(super) response_headers: Texts,
    #[prost(btree_map = "string, bytes", tag = "5")]
    pub(super) response_trailers: Texts,
}

impl Common {
    /// The address of the direct client, not one from headers or an earlier proxy.
    pub(super) fn client_address(&self) -> Option<IpAddr> {
        let remote = self
            .downstream_direct_remote_address
            .as_ref()
            .or(self.downstream_remote_address.as_ref())?;
        let address: IpAddr = text(&remote.socket_address.as_ref()?.address)
            .parse()
            .ok()?;
        Some(address.to_canonical())
    }
}

/// The bytes as text; empty if they are not UTF-8.
pub(super) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
