//! Reads and counts access log entries.

use std::net::IpAddr;
use std::sync::Arc;

use navarch_api::metrics_log::{
    BAGGAGE_TAG, CLUSTER_TAG, OWN_TAG, PEER_NAMESPACE, PEER_TAG, Reporter, SERVICES_TAG, VALUE_TAG,
    WORKLOAD_TAG,
};
use navarch_proto::envoy::data::accesslog::v3::{AccessLogType, ResponseFlags};
use navarch_proto::envoy::extensions::filters::http::grpc_stats::v3::FilterObject;
use prost::Message as _;
use tokio::time::Instant;

use super::connections::{ByteCounts, Rendered};
use super::families::{ALL, Handles, METRICS, Metric};
use super::labels::{self, Labels};
use super::lookups::{self, PeerAnswer};
use super::peers::{self, Workload};
use super::wire::{Certificate, Common, HttpEntry, TcpEntry, Texts, text};
use super::{Log, MAX_KINDS, State};

/// The metadata namespace of the filter that counts gRPC messages.
const GRPC_STATS: &str = "envoy.filters.http.grpc_stats";
/// Clusters without a service.
const NO_SERVICE: [&str; 5] = [
    "BlackHoleCluster",
    "PassthroughCluster",
    "InboundPassthroughCluster",
    "InboundPassthroughClusterIpv4",
    "InboundPassthroughClusterIpv6",
];

/// The index of a label set that exceeded the limit.
const NO_ROOM: Option<u32> = Some(u32::MAX);

/// The fields of a log entry that labels depend on.
#[derive(Debug)]
pub(super) struct EntryFields<'a> {
    pub(super) reporter: Reporter,
    /// The peer's metadata, from its proxy or from its endpoint.
    peer: PeerMetadata<'a>,
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
    pub(super) spoken: ProtocolOutcome,
    pub(super) flags: &'a str,
    /// All tags, including the values of expressions.
    tags: &'a Texts,
}

#[derive(Clone, Copy, Debug)]
enum PeerMetadata<'a> {
    /// From the headers of its proxy, as stored by Envoy.
    Headers(&'a [u8]),
    Endpoint(&'a str),
    /// From the baggage of its tunnel.
    Baggage(&'a str),
}

/// The lookup that an entry waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) address: IpAddr,
    pub(super) until: Instant,
}

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

/// The first URI of a certificate.
fn uri(certificate: Option<&Certificate>) -> &str {
    let names = certificate.map_or(&[][..], |certificate| &certificate.subject_alt_name);
    names
        .iter()
        .map(|name| text(&name.uri))
        .find(|uri| !uri.is_empty())
        .unwrap_or_default()
}

impl<'a> EntryFields<'a> {
    /// Reads the fields common to all entries.
    fn new(
        reporter: Reporter,
        common: &'a Common,
        flags: &'a str,
        spoken: ProtocolOutcome,
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
        Self {
            reporter,
            peer,
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
            spoken,
            flags,
            tags: &common.custom_tags,
        }
    }

    /// Writes everything that labels depend on: entries with the same key have the same labels.
    fn write_key(&self, log: &Log, key: &mut Vec<u8>) {
        key.clear();
        key.extend(log.id.0.to_le_bytes());
        let (code, status) = match self.spoken {
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

impl State {
    /// Counts a request.
    ///
    /// # Errors
    /// If the entry `may_wait` and its peer is not known yet; then the entry is not counted.
    pub(super) fn count_request(
        &mut self,
        own: &Workload,
        log: &Log,
        entry: &HttpEntry,
        now: Instant,
        may_wait: bool,
    ) -> Result<(), Waiting> {
        let Some(common) = entry
            .common_properties
            .as_ref()
            .filter(|common| is_end(common))
        else {
            return Ok(());
        };

        let request = entry.request.as_ref();
        let code = entry
            .response
            .as_ref()
            .and_then(|response| response.response_code)
            .unwrap_or_default();
        let content_type = request.and_then(|request| request.request_headers.get("content-type"));
        let spoken = match content_type.is_some_and(|kind| is_grpc(text(kind))) {
            true => {
                let response = entry.response.as_ref();
                let grpc_status = response.and_then(|response| {
                    let headers = [&response.response_trailers, &response.response_headers];
                    headers
                        .into_iter()
                        .find_map(|headers| headers.get("grpc-status"))
                });
                let status =
                    grpc_status.map(|status| text(status).parse::<u32>().map_or(-1, i64::from));
                ProtocolOutcome::Grpc {
                    code,
                    status: status.or_else(|| (code != 0).then(|| grpc_status_of(code))),
                }
            }
            false => ProtocolOutcome::Http { code },
        };

        let flags = flags(common.response_flags.as_ref());
        let mut seen = EntryFields::new(log.config.reporter, common, &flags, spoken);
        let found = self.find_peer(log, common, &seen, now, may_wait)?;
        if let Some(found) = &found {
            seen.peer = PeerMetadata::Endpoint(found);
        }

        if log.config.host_names_service && seen.services.is_empty() {
            seen.host = request.map_or("", |request| text(&request.authority));
        }

        let handles = self.handles(own, log, &seen, now);
        self.count(&handles, Metric::Requests, 1, now);
        if let Some(duration) = common
            .duration
            .and_then(|span| std::time::Duration::try_from(span).ok())
        {
            self.count(
                &handles,
                Metric::Duration,
                u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
                now,
            );
        }

        self.count(
            &handles,
            Metric::RequestBytes,
            common.downstream_wire_bytes_received,
            now,
        );

        self.count(
            &handles,
            Metric::ResponseBytes,
            common.downstream_wire_bytes_sent,
            now,
        );

        if matches!(spoken, ProtocolOutcome::Grpc { .. })
            && let Some(stats) = common.filter_state_objects.get(GRPC_STATS)
            && let Ok(stats) = FilterObject::decode(stats.value.as_slice())
        {
            self.count(
                &handles,
                Metric::RequestMessages,
                stats.request_message_count,
                now,
            );
            self.count(
                &handles,
                Metric::ResponseMessages,
                stats.response_message_count,
                now,
            );
        }

        Ok(())
    }

    /// Counts the increase since the earlier entries of a connection.
    ///
    /// # Errors
    /// As [`Self::count_request`].
    pub(super) fn count_connection(
        &mut self,
        own: &Workload,
        log: &Log,
        entry: &TcpEntry,
        now: Instant,
        may_wait: bool,
    ) -> Result<(), Waiting> {
        let Some(common) = &entry.common_properties else {
            return Ok(());
        };

        let is_end = is_end(common);
        let bytes = entry
            .connection_properties
            .map_or_else(ByteCounts::default, |bytes| ByteCounts {
                received: bytes.received_bytes,
                sent: bytes.sent_bytes,
            });
        let flags = flags(common.response_flags.as_ref());
        let found;
        let mut seen = EntryFields::new(log.config.reporter, common, &flags, ProtocolOutcome::Tcp);
        let known = self.connections.take(&common.stream_id);
        let is_new = known.is_none();

        let (rendered, before) = match known {
            Some(known) => (known.rendered, known.bytes),
            None => {
                found = self.find_peer(log, common, &seen, now, may_wait)?;
                if let Some(found) = &found {
                    seen.peer = PeerMetadata::Endpoint(found);
                }
                (
                    Arc::new(self.render(own, log, &seen)),
                    ByteCounts::default(),
                )
            }
        };

        if !is_end
            && !self
                .connections
                .keep(&common.stream_id, rendered.clone(), bytes, now)
        {
            // If it cannot be tracked, it is counted when it ends.
            return Ok(());
        }
        let handles = self.places(&rendered, now);
        if is_new {
            self.count(&handles, Metric::Opened, 1, now);
        }

        self.count(
            &handles,
            Metric::Received,
            bytes.received.saturating_sub(before.received),
            now,
        );

        self.count(
            &handles,
            Metric::Sent,
            bytes.sent.saturating_sub(before.sent),
            now,
        );
        if is_end {
            self.count(&handles, Metric::Closed, 1, now);
        }

        Ok(())
    }

    /// The client of a server, in the format of endpoint metadata, if its proxy sent no headers:
    /// looked up at the control plane by address. Clients without an identity are not looked up, as
    /// their address proves nothing.
    fn find_peer(
        &mut self,
        log: &Log,
        common: &Common,
        seen: &EntryFields<'_>,
        now: Instant,
        may_wait: bool,
    ) -> Result<Option<Arc<str>>, Waiting> {
        let lacks_metadata = matches!(seen.peer, PeerMetadata::Headers([]))
            && seen.reporter == Reporter::Destination;
        if !(log.config.finds_peers && lacks_metadata)
            || lookups::account_of(seen.peer_principal).is_none()
        {
            return Ok(None);
        }
        let Some(address) = common.client_address() else {
            return Ok(None);
        };
        match self.lookups.find(address, seen.peer_principal, now) {
            PeerAnswer::Known(description) => Ok(Some(description)),
            PeerAnswer::Pending(until) if may_wait => Err(Waiting { address, until }),
            PeerAnswer::Pending(_) | PeerAnswer::Unknown => Ok(None),
        }
    }

    /// The handles of the label sets of an entry.
    fn handles(
        &mut self,
        own: &Workload,
        log: &Log,
        seen: &EntryFields<'_>,
        now: Instant,
    ) -> Handles {
        let mut key = std::mem::take(&mut self.key);
        seen.write_key(log, &mut key);
        let known = self.kinds.get(key.as_slice()).copied();
        let handles = known.unwrap_or_else(|| {
            let rendered = self.render(own, log, seen);
            let handles = self.places(&rendered, now);
            if self.kinds.len() >= MAX_KINDS {
                self.kinds.clear();
            }
            // Label sets that exceeded the limit are tried again.
            if !handles.contains(&NO_ROOM) {
                self.kinds.insert(key.as_slice().into(), handles);
            }
            handles
        });
        self.key = key;
        handles
    }

    /// The labels of an entry, by metric.
    fn render(&mut self, own: &Workload, log: &Log, seen: &EntryFields<'_>) -> Rendered {
        let peer = match seen.peer {
            PeerMetadata::Headers(headers) => self.peers.read(headers),
            PeerMetadata::Endpoint(endpoint) => Arc::new(Workload::from_endpoint(endpoint)),
            PeerMetadata::Baggage(baggage) => Arc::new(Workload::from_baggage(baggage)),
        };
        let endpoint = Workload::from_endpoint(seen.endpoint);
        let of_peers = labels::of_peers(own, &peer, &endpoint, seen);
        let mut all = of_peers.clone();
        labels::add_outcome(&mut all, seen);

        let is_tcp = matches!(seen.spoken, ProtocolOutcome::Tcp);
        let is_grpc = matches!(seen.spoken, ProtocolOutcome::Grpc { .. });
        let render = |metric: Metric, labels: &Labels<'_>| {
            log.overrides.render(metric.place(), labels, seen.tags)
        };

        ALL.map(|(metric, ..)| match metric {
            Metric::Opened | Metric::Closed | Metric::Sent | Metric::Received => {
                is_tcp.then(|| render(metric, &all)).flatten()
            }
            Metric::Requests | Metric::Duration | Metric::RequestBytes | Metric::ResponseBytes => {
                (!is_tcp).then(|| render(metric, &all)).flatten()
            }
            // Messages are counted before the outcome is known.
            Metric::RequestMessages | Metric::ResponseMessages => {
                is_grpc.then(|| render(metric, &of_peers)).flatten()
            }
        })
    }

    fn places(&mut self, rendered: &Rendered, now: Instant) -> Handles {
        if self.families.sweep(now) {
            self.kinds.clear();
        }
        let mut handles: Handles = [None; METRICS];
        for ((metric, ..), (labels, place)) in ALL.iter().zip(rendered.iter().zip(&mut handles)) {
            if let Some(labels) = labels {
                *place = self.families.place(*metric, labels, now).or(NO_ROOM);
            }
        }
        handles
    }

    /// Adds to a label set by handle. Dropped metrics have none; those that exceeded the limit have
    /// an invalid one.
    fn count(&mut self, handles: &Handles, metric: Metric, amount: u64, now: Instant) {
        if let Some(place) = handles.get(metric.place()).copied().flatten() {
            self.families.add(metric, Some(place), amount, now);
        }
    }
}

/// Whether an entry is for the end of a request or a connection.
fn is_end(common: &Common) -> bool {
    match AccessLogType::try_from(common.access_log_type) {
        Ok(
            AccessLogType::TcpConnectionEnd | AccessLogType::DownstreamEnd | AccessLogType::NotSet,
        ) => true,
        Ok(_) | Err(_) => false,
    }
}

/// The flags of a response in Envoy's short form.
fn flags(flags: Option<&ResponseFlags>) -> String {
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
