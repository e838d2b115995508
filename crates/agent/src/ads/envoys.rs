//! The Envoys that have a stream, by process: while one takes over from another by hot restart, both
//! have one, and neither ends that of the other.
//!
//! What an Envoy has of routes is remembered beyond its stream, for the first request of its next one
//! ([`RoutesHeld`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use navarch_base::printable::{Layout, bounded};
use navarch_base::routes_held::RoutesHeld;
use navarch_proto::google::rpc;
use parking_lot::Mutex;
use prost::Message as _;
use tokio_util::sync::CancellationToken;

use super::{Protocol, peek};

/// Maximum number of types that are remembered of a stream. Envoy uses a dozen.
const MAX_TYPES: usize = 32;
/// Maximum length of the reason of a NACK.
const MAX_REASON: usize = 512;
/// Maximum number of processes whose routes are remembered: two have streams at most, and each start
/// of Envoy is another process. A forgotten one that comes back counts as one with whole tables.
const MAX_PROCESSES: usize = 8;

/// The process of a stream's client, by the kernel; `None` if the kernel does not know it.
pub(super) type ProcessId = Option<i32>;

/// The Envoys that have a stream. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct EnvoyStreams(Arc<Mutex<Streams>>);

#[derive(Debug, Default)]
struct Streams {
    /// The number of the next stream.
    next: u64,
    /// The newest stream of each process. An entry lasts as long as its stream.
    newest: BTreeMap<ProcessId, Newest>,
    /// What processes have of routes, the one with the latest news last.
    routes: VecDeque<(ProcessId, RoutesHeld)>,
}

#[derive(Debug)]
struct Newest {
    number: u64,
    /// Cancelled when the process opens another stream.
    replaced: CancellationToken,
    report: StreamReport,
}

/// What an Envoy has answered on its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamReport {
    /// Type URLs with a response that Envoy has accepted.
    pub accepted: BTreeSet<String>,
    /// Type URLs whose last response Envoy has rejected, with its reason.
    pub rejected: BTreeMap<String, String>,
}

/// A stream in [`EnvoyStreams`], until it is dropped.
#[derive(Debug)]
pub(super) struct EnvoyStream {
    process: ProcessId,
    number: u64,
    all: EnvoyStreams,
}

impl EnvoyStreams {
    /// What the Envoy with this process id has answered; `None` while it has no stream.
    #[must_use]
    pub fn report(&self, process: u32) -> Option<StreamReport> {
        let process = i32::try_from(process).ok()?;
        let streams = self.0.lock();
        let newest = streams.newest.get(&Some(process))?;
        Some(newest.report.clone())
    }

    /// Notes what a process has of routes.
    pub(super) fn note_routes(&self, process: ProcessId, held: RoutesHeld) {
        let mut streams = self.0.lock();
        if streams.routes_of(process) != Some(held) {
            streams.set_routes(process, held);
        }
    }

    /// What a process has of routes when it opens a stream, with resources of an earlier one or
    /// without. The id of a process may have been another's before: then the newer Envoy has
    /// nothing, and may be given either form.
    pub(super) fn routes_held(&self, process: ProcessId, has_resources: bool) -> RoutesHeld {
        // Of an Envoy that the agent did not start, an earlier agent may have passed the routes.
        let unknown = match has_resources {
            true => RoutesHeld::Whole,
            false => RoutesHeld::Nothing,
        };
        self.0.lock().routes_of(process).unwrap_or(unknown)
    }

    /// Adds a stream, and ends the one before of the same process.
    pub(super) fn add(&self, process: ProcessId, replaced: CancellationToken) -> EnvoyStream {
        let mut streams = self.0.lock();
        let number = streams.next;
        streams.next += 1;

        let newest = Newest {
            number,
            replaced,
            report: StreamReport::default(),
        };
        if let Some(before) = streams.newest.insert(process, newest) {
            before.replaced.cancel();
        }

        EnvoyStream {
            process,
            number,
            all: self.clone(),
        }
    }
}

impl Streams {
    fn routes_of(&self, process: ProcessId) -> Option<RoutesHeld> {
        let known = self.routes.iter().find(|(known, _)| *known == process);
        known.map(|(_, held)| *held)
    }

    fn set_routes(&mut self, process: ProcessId, held: RoutesHeld) {
        self.routes.retain(|(known, _)| *known != process);
        if self.routes.len() >= MAX_PROCESSES {
            self.routes.pop_front();
        }
        self.routes.push_back((process, held));
    }
}

impl EnvoyStream {
    /// Notes whether a request is an ACK or a NACK.
    ///
    /// # Errors
    /// If the bytes are not a protobuf message.
    pub(super) fn note(
        &self,
        protocol: Protocol,
        type_url: &str,
        request: &Bytes,
    ) -> Result<(), prost::DecodeError> {
        let (nonce, error) = match protocol {
            Protocol::State => (peek::NONCE, peek::ERROR),
            Protocol::Delta => (peek::DELTA_REQUEST_NONCE, peek::DELTA_REQUEST_ERROR),
        };
        // The first request of a type answers nothing.
        if peek::string(request, nonce)?.is_empty() {
            return Ok(());
        }

        let reason = peek::bytes(request, error)?
            .map(|error| rpc::Status::decode(error).map(|status| status.message))
            .transpose()?;
        let mut streams = self.all.0.lock();
        if let Some(newest) = streams.newest.get_mut(&self.process)
            && newest.number == self.number
        {
            newest.report.note(type_url, reason);
        }
        Ok(())
    }
}

impl Drop for EnvoyStream {
    fn drop(&mut self) {
        let mut streams = self.all.0.lock();
        let is_newest = streams
            .newest
            .get(&self.process)
            .is_some_and(|newest| newest.number == self.number);
        if is_newest {
            streams.newest.remove(&self.process);
        }
    }
}

impl StreamReport {
    /// Notes an ACK, or a NACK with its reason.
    fn note(&mut self, type_url: &str, reason: Option<String>) {
        let is_known = self.accepted.contains(type_url) || self.rejected.contains_key(type_url);
        if !is_known && self.accepted.len() + self.rejected.len() >= MAX_TYPES {
            return;
        }

        match reason {
            Some(reason) => {
                let reason = bounded(&reason, MAX_REASON, Layout::Quoted);
                self.rejected.insert(type_url.to_owned(), reason);
            }
            None => {
                self.rejected.remove(type_url);
                self.accepted.insert(type_url.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};

    use super::*;

    const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn error(message: &str) -> Option<rpc::Status> {
        Some(rpc::Status {
            message: message.to_owned(),
            ..rpc::Status::default()
        })
    }

    #[test]
    fn a_second_process_does_not_end_the_stream_of_the_first() {
        let streams = EnvoyStreams::default();
        let tokens = [(); 3].map(|()| CancellationToken::new());
        let first = streams.add(Some(1), tokens[0].clone());
        let _second = streams.add(Some(2), tokens[1].clone());
        assert!(!tokens[0].is_cancelled());

        // The same process again.
        let _again = streams.add(Some(1), tokens[2].clone());
        assert!(tokens[0].is_cancelled() && !tokens[1].is_cancelled());

        // The end of the replaced stream does not remove the newer one.
        drop(first);
        assert!(streams.report(1).is_some());
    }

    #[test]
    fn what_a_process_has_of_routes_outlives_its_stream() {
        let streams = EnvoyStreams::default();
        let first = streams.add(Some(1), CancellationToken::new());
        assert_eq!(streams.routes_held(Some(1), false), RoutesHeld::Nothing);

        streams.note_routes(Some(1), RoutesHeld::Whole);
        drop(first);
        assert_eq!(streams.routes_held(Some(1), true), RoutesHeld::Whole);
        assert_eq!(streams.routes_held(Some(2), false), RoutesHeld::Nothing);

        for held in [RoutesHeld::VirtualHosts, RoutesHeld::Whole] {
            streams.note_routes(Some(2), held);
            assert_eq!(streams.routes_held(Some(2), true), held);
        }
        assert_eq!(streams.routes_held(Some(1), true), RoutesHeld::Whole);
    }

    #[test]
    fn an_unknown_process_with_resources_has_whole_routes() {
        let streams = EnvoyStreams::default();
        assert_eq!(streams.routes_held(Some(1), true), RoutesHeld::Whole);

        streams.note_routes(Some(1), RoutesHeld::VirtualHosts);
        for process in 2..=9 {
            streams.note_routes(Some(process), RoutesHeld::Whole);
        }
        assert_eq!(streams.routes_held(Some(1), true), RoutesHeld::Whole);
        assert_eq!(streams.0.lock().routes.len(), MAX_PROCESSES);
    }

    #[test]
    fn answers_are_noted_by_type_until_the_stream_ends() {
        let streams = EnvoyStreams::default();
        let stream = streams.add(Some(7), CancellationToken::new());
        let note = |request: DeltaDiscoveryRequest| {
            let bytes = request.encode_to_vec().into();
            stream.note(Protocol::Delta, CLUSTERS, &bytes).unwrap();
        };

        note(DeltaDiscoveryRequest::default());
        assert_eq!(streams.report(7), Some(StreamReport::default()));

        let answered = DeltaDiscoveryRequest {
            response_nonce: "1".to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        note(DeltaDiscoveryRequest {
            error_detail: error("no such filter"),
            ..answered.clone()
        });
        let report = streams.report(7).unwrap();
        assert_eq!(report.rejected[CLUSTERS], "no such filter");
        assert!(report.accepted.is_empty());

        note(answered);
        let report = streams.report(7).unwrap();
        assert!(report.accepted.contains(CLUSTERS) && report.rejected.is_empty());

        drop(stream);
        assert_eq!(streams.report(7), None);
    }

    #[test]
    fn a_client_cannot_make_a_report_grow() {
        let streams = EnvoyStreams::default();
        let stream = streams.add(Some(7), CancellationToken::new());
        for number in 0..100 {
            let request = DiscoveryRequest {
                response_nonce: "1".to_owned(),
                error_detail: error(&"x".repeat(10_000)),
                ..DiscoveryRequest::default()
            };
            let bytes = request.encode_to_vec().into();
            let type_url = format!("type{number}");
            stream.note(Protocol::State, &type_url, &bytes).unwrap();
        }

        let report = streams.report(7).unwrap();
        assert_eq!(report.rejected.len(), MAX_TYPES);
        assert!(report.rejected.values().all(|reason| reason.len() < 1000));
    }
}
