//! The fields of access log entries that labels depend on.

use navarch_base::metrics_log::{
    BAGGAGE_TAG, CLUSTER_TAG, OWN_TAG, PEER_NAMESPACE, PEER_TAG, Reporter, SERVICES_TAG, VALUE_TAG,
    WORKLOAD_TAG,
};
use navarch_proto::envoy::data::accesslog::v3::ResponseFlags;

use super::Log;
use super::peer_attributes::{KnownPeer, KnownPeers};
use super::peers::{self, Workload};
use super::wire::{Certificate, Common, HttpEntry, Texts, text};

/// Clusters without a service.
const NO_SERVICE: [&str; 5] = [
    "BlackHoleCluster",
    "PassthroughCluster",
    "InboundPassthroughCluster",
    "InboundPassthroughClusterIpv4",
    "InboundPassthroughClusterIpv6",
];

/// The fields of a log entry that labels depend on.
#[derive(Debug)]
pub(super) struct EntryFields<'a> {
    pub(super) reporter: Reporter,
    /// The peer's metadata, from its proxy or from its endpoint.
    pub(super) peer: PeerMetadata<'a>,
    /// Its exchanged labels, if they are known, as `name=value,...`.
    peer_labels: &'a str,
    /// Metadata of the endpoint that a waypoint selected.
    pub(super) endpoint: &'a str,
    pub(super) peer_principal: &'a str,
    pub(super) own_principal: &'a str,
    /// The cluster's services as JSON.
    pub(super) services: &'a str,
    /// The request's host, if it may be the name of the service.
    pub(super) host: &'a str,
    /// The fallback if there is no service.
    pub(super) no_service: Option<&'static str>,
    pub(super) outcome: ProtocolOutcome,
    pub(super) flags: &'a str,
    /// All tags, including the values of expressions.
    pub(super) tags: &'a Texts,
}

/// The metadata of the peer, by where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum PeerMetadata<'a> {
    /// From the headers of its proxy, as stored by Envoy.
    Headers(&'a [u8]),
    Endpoint(&'a str),
    /// From the baggage of its tunnel.
    Baggage(&'a str),
}

/// The protocol of an entry, with its status.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProtocolOutcome {
    /// A TCP connection.
    Tcp,
    /// An HTTP request.
    Http {
        code: u32,
    },
    Grpc {
        code: u32,
        status: Option<i64>,
    },
}

impl<'a> EntryFields<'a> {
    /// Reads the fields common to all entries.
    pub(super) fn new(
        reporter: Reporter,
        common: &'a Common,
        flags: &'a str,
        outcome: ProtocolOutcome,
    ) -> Self {
        // Envoy writes a hyphen for an empty value.
        let tag = |name: &str| {
            common
                .custom_tags
                .get(name)
                .map_or("", |value| text(value))
                .trim_start_matches('-')
        };

        let first = |name: &str| tag(name).split(',').next().unwrap_or_default();
        let (peer, peer_principal, own_principal) = match reporter {
            Reporter::Source => {
                let peer = match first(PEER_TAG) {
                    // The access log of tunneled traffic has no information on the TLS of the
                    // tunnel.
                    "" => peers::identity_of_endpoint(tag(WORKLOAD_TAG)),
                    peer => peer,
                };

                (
                    PeerMetadata::Endpoint(tag(WORKLOAD_TAG)),
                    peer,
                    first(OWN_TAG),
                )
            }
            Reporter::Waypoint => (
                PeerMetadata::Baggage(tag(BAGGAGE_TAG)),
                first(PEER_TAG),
                first(OWN_TAG),
            ),
            Reporter::Destination => {
                let tls = common.tls_properties.as_ref();
                let peer = uri(tls.and_then(|tls| tls.peer_certificate_properties.as_ref()));
                let own = uri(tls.and_then(|tls| tls.local_certificate_properties.as_ref()));

                // Tunneled traffic has no TLS of its own; the identity comes from the tunnel.
                match (first(PEER_TAG), client_metadata(common)) {
                    (of_tunnel, headers) if !peer.is_empty() || of_tunnel.is_empty() => {
                        (PeerMetadata::Headers(headers), peer, own)
                    }
                    (of_tunnel, []) => (
                        PeerMetadata::Baggage(tag(BAGGAGE_TAG)),
                        of_tunnel,
                        first(OWN_TAG),
                    ),
                    (of_tunnel, headers) => {
                        (PeerMetadata::Headers(headers), of_tunnel, first(OWN_TAG))
                    }
                }
            }
        };

        let no_service = match text(&common.route_name) {
            "block_all" => Some(NO_SERVICE[0]),
            "allow_any" => Some(NO_SERVICE[1]),
            _ => NO_SERVICE.into_iter().find(|cluster| {
                cluster.as_bytes() == common.upstream_cluster || *cluster == tag(CLUSTER_TAG)
            }),
        };

        let services = tag(SERVICES_TAG);
        let peer_labels = match peer {
            PeerMetadata::Endpoint(endpoint) => peers::labels_of_endpoint(endpoint),
            PeerMetadata::Headers(_) | PeerMetadata::Baggage(_) => "",
        };
        Self {
            reporter,
            peer,
            peer_labels,
            endpoint: if reporter == Reporter::Waypoint {
                tag(WORKLOAD_TAG)
            } else {
                ""
            },
            peer_principal,
            own_principal,
            services,
            host: "",
            no_service,
            outcome,
            flags,
            tags: &common.custom_tags,
        }
    }

    /// Adds the control plane's description of the peer, in the format of endpoint metadata. The
    /// peer's own headers take precedence.
    pub(super) fn add_lookup(&mut self, found: &'a str) {
        self.peer_labels = peers::labels_of_endpoint(found);
        if matches!(self.peer, PeerMetadata::Headers([])) {
            self.peer = PeerMetadata::Endpoint(found);
        }
    }

    /// The peers by their sides, for `peer` as labels describe it, and the endpoint of a waypoint.
    pub(super) fn known_peers<'w>(
        &'w self,
        peer: &'w Workload,
        endpoint: &'w Workload,
    ) -> KnownPeers<'w> {
        let peer = KnownPeer {
            workload: peer,
            labels: self.peer_labels,
        };
        let (upstream, downstream) = match self.reporter {
            Reporter::Source => (Some(peer), None),
            Reporter::Destination => (None, Some(peer)),
            Reporter::Waypoint => {
                let endpoint = KnownPeer {
                    workload: endpoint,
                    labels: peers::labels_of_endpoint(self.endpoint),
                };
                (Some(endpoint), Some(peer))
            }
        };
        KnownPeers {
            upstream,
            downstream,
        }
    }

    /// Writes everything that labels depend on: entries with the same key have the same labels.
    pub(super) fn write_key(&self, log: &Log, key: &mut Vec<u8>) {
        key.clear();
        key.extend(log.id.0.to_le_bytes());
        let (code, status) = match self.outcome {
            ProtocolOutcome::Tcp => (u32::MAX, None),
            ProtocolOutcome::Http { code } => (code, None),
            ProtocolOutcome::Grpc { code, status } => (code, Some(status.unwrap_or(i64::MIN))),
        };
        key.extend(code.to_le_bytes());

        key.push(u8::from(status.is_some()));
        key.extend(status.unwrap_or_default().to_le_bytes());
        let peer = match self.peer {
            PeerMetadata::Headers(headers) => headers,
            PeerMetadata::Endpoint(metadata) | PeerMetadata::Baggage(metadata) => {
                metadata.as_bytes()
            }
        };

        let texts = [
            self.peer_labels,
            self.endpoint,
            self.peer_principal,
            self.own_principal,
            self.services,
            self.host,
            self.flags,
        ];

        let texts = texts.into_iter().chain(self.no_service).map(str::as_bytes);
        let values = self
            .tags
            .range(VALUE_TAG.to_owned()..)
            .take_while(|(tag, _)| tag.starts_with(VALUE_TAG));
        let values = values.flat_map(|(tag, value)| [tag.as_bytes(), value.as_slice()]);

        for text in std::iter::once(peer).chain(texts).chain(values) {
            key.extend(text.len().to_le_bytes());
            key.extend_from_slice(text);
        }
    }
}

impl ProtocolOutcome {
    /// The outcome of a request.
    pub(super) fn of_request(entry: &HttpEntry) -> Self {
        let request = entry.request.as_ref();
        let response = entry.response.as_ref();
        let code = response
            .and_then(|response| response.response_code)
            .unwrap_or_default();

        let content_type = request.and_then(|request| request.request_headers.get("content-type"));
        if !content_type.is_some_and(|kind| is_grpc(text(kind))) {
            return Self::Http { code };
        }

        let grpc_status = response.and_then(|response| {
            let headers = [&response.response_trailers, &response.response_headers];
            headers
                .into_iter()
                .find_map(|headers| headers.get("grpc-status"))
        });
        let status = grpc_status.map(|status| text(status).parse::<u32>().map_or(-1, i64::from));

        Self::Grpc {
            code,
            status: status.or_else(|| (code != 0).then(|| grpc_status_of(code))),
        }
    }
}

/// The first URI of a certificate.
fn uri(certificate: Option<&Certificate>) -> &str {
    let names = certificate.map_or(&[][..], |certificate| &certificate.subject_alt_name);
    names
        .iter()
        .map(|name| text(&name.uri))
        .find(|uri| !uri.is_empty())
        .unwrap_or_default()
}

/// The client's metadata as sent by its proxy: a `google.protobuf.Struct`.
fn client_metadata(common: &Common) -> &[u8] {
    let kept = common
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.filter_metadata.get(PEER_NAMESPACE));
    kept.map_or(&[], Vec::as_slice)
}

/// Whether a request is gRPC, by its content type.
fn is_grpc(content_type: &str) -> bool {
    content_type
        .strip_prefix("application/grpc")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
}

/// The gRPC status of a response without `grpc-status`.
fn grpc_status_of(code: u32) -> i64 {
    match code {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => 2,
    }
}

/// The flags of a response in Envoy's short form.
pub(super) fn flags(flags: Option<&ResponseFlags>) -> String {
    let Some(flags) = flags else {
        return String::new();
    };

    let all = [
        (flags.failed_local_healthcheck, "LH"),
        (flags.no_healthy_upstream, "UH"),
        (flags.upstream_request_timeout, "UT"),
        (flags.local_reset, "LR"),
        (flags.upstream_remote_reset, "UR"),
        (flags.upstream_connection_failure, "UF"),
        (flags.upstream_connection_termination, "UC"),
        (flags.upstream_overflow, "UO"),
        (flags.no_route_found, "NR"),
        (flags.delay_injected, "DI"),
        (flags.fault_injected, "FI"),
        (flags.rate_limited, "RL"),
        (flags.unauthorized_details.is_some(), "UAEX"),
        (flags.rate_limit_service_error, "RLSE"),
        (flags.downstream_connection_termination, "DC"),
        (flags.upstream_retry_limit_exceeded, "URX"),
        (flags.stream_idle_timeout, "SI"),
        (flags.invalid_envoy_request_headers, "IH"),
        (flags.downstream_protocol_error, "DPE"),
        (flags.upstream_max_stream_duration_reached, "UMSDR"),
        (flags.response_from_cache_filter, "RFCF"),
        (flags.no_filter_config_found, "NFCF"),
        (flags.duration_timeout, "DT"),
        (flags.upstream_protocol_error, "UPE"),
        (flags.no_cluster_found, "NC"),
        (flags.overload_manager, "OM"),
        (flags.dns_resolution_failure, "DF"),
        (flags.downstream_remote_reset, "DR"),
    ];

    let set: Vec<&str> = all
        .into_iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, flag)| flag)
        .collect();

    set.join(",")
}
