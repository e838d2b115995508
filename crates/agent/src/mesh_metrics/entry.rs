//! Counts access log entries.

use std::net::IpAddr;
use std::sync::Arc;

use navarch_base::metrics_log::Reporter;
use navarch_proto::envoy::data::accesslog::v3::AccessLogType;
use navarch_proto::envoy::extensions::filters::http::grpc_stats::v3::FilterObject;
use prost::Message as _;
use tokio::time::Instant;

use super::connections::{ByteCounts, Rendered};
use super::entry_fields::{EntryFields, PeerMetadata, ProtocolOutcome, flags};
use super::families::{ALL, Handles, METRICS, Metric};
use super::labels::{self, Labels};
use super::lookups::{self, PeerAnswer};
use super::peers::Workload;
use super::wire::{Common, HttpEntry, TcpEntry, text};
use super::{Log, MAX_KINDS, State};

/// The metadata namespace of the filter that counts gRPC messages.
const GRPC_STATS: &str = "envoy.filters.http.grpc_stats";
/// The index of a label set that exceeded the limit.
const NO_ROOM: Option<u32> = Some(u32::MAX);

/// The lookup that an entry waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) address: IpAddr,
    pub(super) until: Instant,
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

        let outcome = ProtocolOutcome::of_request(entry);

        let flags = flags(common.response_flags.as_ref());
        let mut fields = EntryFields::new(log.config.reporter, common, &flags, outcome);
        let found = self.find_peer(log, common, &fields, now, may_wait)?;
        if let Some(found) = &found {
            fields.add_lookup(found);
        }

        if log.config.host_names_service && fields.services.is_empty() {
            fields.host = entry
                .request
                .as_ref()
                .map_or("", |request| text(&request.authority));
        }

        let handles = self.handles(own, log, &fields, now);
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

        if matches!(outcome, ProtocolOutcome::Grpc { .. })
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
        let mut fields =
            EntryFields::new(log.config.reporter, common, &flags, ProtocolOutcome::Tcp);
        let known = self.connections.take(&common.stream_id);
        let is_new = known.is_none();

        let (rendered, before) = match known {
            Some(known) => (known.rendered, known.bytes),
            None => {
                found = self.find_peer(log, common, &fields, now, may_wait)?;
                if let Some(found) = &found {
                    fields.add_lookup(found);
                }
                (
                    Arc::new(self.render(own, log, &fields)),
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
        let handles = self.handles_of(&rendered, now);
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

    /// The client of a server, in the format of endpoint metadata, if its proxy sent no headers, or
    /// if its labels are read, which headers lack: looked up at the control plane by address. Clients
    /// without an identity are not looked up, as their address proves nothing.
    fn find_peer(
        &mut self,
        log: &Log,
        common: &Common,
        fields: &EntryFields<'_>,
        now: Instant,
        may_wait: bool,
    ) -> Result<Option<Arc<str>>, Waiting> {
        let is_wanted = match fields.peer {
            PeerMetadata::Headers(headers) => {
                headers.is_empty() || log.overrides.reads_client_labels()
            }
            PeerMetadata::Endpoint(_) | PeerMetadata::Baggage(_) => false,
        };
        if !(log.config.finds_peers && is_wanted && fields.reporter == Reporter::Destination)
            || lookups::account_of(fields.peer_principal).is_none()
        {
            return Ok(None);
        }
        let Some(address) = common.client_address() else {
            return Ok(None);
        };
        match self.lookups.find(address, fields.peer_principal, now) {
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
        fields: &EntryFields<'_>,
        now: Instant,
    ) -> Handles {
        let mut key = std::mem::take(&mut self.key);
        fields.write_key(log, &mut key);
        let known = self.kinds.get(key.as_slice()).copied();
        let handles = known.unwrap_or_else(|| {
            let rendered = self.render(own, log, fields);
            let handles = self.handles_of(&rendered, now);
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
    fn render(&mut self, own: &Workload, log: &Log, fields: &EntryFields<'_>) -> Rendered {
        let peer = match fields.peer {
            PeerMetadata::Headers(headers) => self.peers.read(headers),
            PeerMetadata::Endpoint(endpoint) => Arc::new(Workload::from_endpoint(endpoint)),
            PeerMetadata::Baggage(baggage) => Arc::new(Workload::from_baggage(baggage)),
        };
        let endpoint = Workload::from_endpoint(fields.endpoint);
        let of_peers = labels::of_peers(own, &peer, &endpoint, fields);
        let mut all = of_peers.clone();
        labels::add_outcome(&mut all, fields);

        let peers = fields.known_peers(&peer, &endpoint);
        let is_tcp = matches!(fields.outcome, ProtocolOutcome::Tcp);
        let is_grpc = matches!(fields.outcome, ProtocolOutcome::Grpc { .. });
        let render = |metric: Metric, labels: &Labels<'_>| {
            log.overrides
                .render(metric.place(), labels, fields.tags, &peers)
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

    /// The handles of these label sets.
    fn handles_of(&mut self, rendered: &Rendered, now: Instant) -> Handles {
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
