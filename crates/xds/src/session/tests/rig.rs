//! A session driven by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use navarch_proto::google::rpc::Status as ErrorDetail;
use navarch_proto::raw::{RawDeltaDiscoveryResponse, RawDiscoveryResponse};
use prost::Message;
use tokio::time::Instant;

use super::super::*;
use crate::session::discovery_request::Wire;
use crate::session::push_ring::DEFAULT_PUSH_HISTORY;
use navarch_push::resource::Resource;

pub(crate) use ResourceType::{
    Address as WDS, Authorization as WADS, Cluster as CDS, Endpoint as EDS, Listener as LDS,
    Route as RDS, Secret as SDS, VirtualHost as VHDS,
};

/// A first pause that is longer than any test.
pub(crate) const NO_RETRY: Duration = Duration::from_hours(1_000);

/// A session with a manual clock.
pub(crate) struct Rig {
    pub(crate) session: Session,
    pub(crate) cache: EncodingCache,
    pub(crate) now: Duration,
    pub(crate) revision: u64,
}

/// A response in short form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentResponse {
    pub(crate) resource_type: ResourceType,
    /// `name=body` in delta, `body` else; a cluster's body is its version.
    pub(crate) resources: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) nonce: String,
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The body of a cluster with endpoints from EDS.
pub(crate) fn cluster_body(name: &str, version: &str) -> Bytes {
    let cluster = Cluster {
        name: name.to_owned(),
        alt_stat_name: version.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        ..Cluster::default()
    };
    cluster.encode_to_vec().into()
}

pub(crate) fn body_of(resource_type: ResourceType, name: &str, text: &str) -> Bytes {
    if resource_type == CDS {
        cluster_body(name, text)
    } else {
        Bytes::copy_from_slice(text.as_bytes())
    }
}

pub(crate) fn text_of(resource_type: ResourceType, body: &[u8]) -> String {
    if resource_type == CDS {
        Cluster::decode(body).unwrap().alt_stat_name
    } else {
        String::from_utf8(body.to_vec()).unwrap()
    }
}

pub(crate) fn collection(
    resource_type: ResourceType,
    resources: &BTreeMap<String, String>,
) -> Arc<Collection> {
    let resource = |(name, text): (&String, &String)| {
        Arc::new(Resource::new(
            resource_type,
            ResourceName::new(name),
            body_of(resource_type, name, text),
        ))
    };
    Arc::new(Collection::new(
        resource_type,
        resources.iter().map(resource).collect(),
    ))
}

/// A delta request in short; names start with `-` to unsubscribe.
pub(crate) fn delta(
    resource_type: ResourceType,
    names: &[&str],
    nonce: &str,
    error: Option<&str>,
) -> Request {
    let (off, on): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.starts_with('-'));
    let request = DeltaDiscoveryRequest {
        type_url: resource_type.type_url().to_owned(),
        resource_names_subscribe: strings(&on),
        resource_names_unsubscribe: off.iter().map(|name| name[1..].to_owned()).collect(),
        response_nonce: nonce.to_owned(),
        error_detail: error.map(detail),
        ..DeltaDiscoveryRequest::default()
    };
    request.parse().unwrap()
}

/// A delta client's first request of a type, with names from an earlier stream.
pub(crate) fn come_back(
    resource_type: ResourceType,
    names: &[&str],
    initial_versions: &[&str],
) -> Request {
    let request = DeltaDiscoveryRequest {
        type_url: resource_type.type_url().to_owned(),
        resource_names_subscribe: strings(names),
        initial_resource_versions: initial_versions
            .iter()
            .map(|name| ((*name).to_owned(), String::new()))
            .collect(),
        ..DeltaDiscoveryRequest::default()
    };
    request.parse().unwrap()
}

/// A state-of-the-world request in short.
pub(crate) fn state(
    resource_type: ResourceType,
    names: &[&str],
    nonce: &str,
    error: Option<&str>,
) -> Request {
    let request = DiscoveryRequest {
        type_url: resource_type.type_url().to_owned(),
        resource_names: strings(names),
        response_nonce: nonce.to_owned(),
        error_detail: error.map(detail),
        ..DiscoveryRequest::default()
    };
    request.parse().unwrap()
}

fn detail(message: &str) -> ErrorDetail {
    ErrorDetail {
        code: 13,
        message: message.to_owned(),
        details: Vec::new(),
    }
}

impl Rig {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self::remembering(protocol, DEFAULT_PUSH_HISTORY)
    }

    /// With a history of this many responses.
    pub(crate) fn remembering(protocol: Protocol, history: usize) -> Self {
        let marks = Marks {
            started: Arc::from("start"),
            stream: 1,
            count: 0,
        };

        Self {
            session: Session::new(
                protocol,
                marks,
                Bounds {
                    keeps_clusters: false,
                    versions: Versions::Sent,
                    retry_pause: NO_RETRY,
                    names: MAX_WATCHED,
                    history,
                },
            ),
            cache: EncodingCache::default(),
            now: Duration::ZERO,
            revision: 1,
        }
    }

    pub(crate) fn request(&mut self, request: Request) -> Vec<Effect> {
        self.session.step(Event::Request(request), &self.cache)
    }

    /// The push thread responds to a subscription.
    pub(crate) fn answer(&mut self, resource_type: ResourceType, resources: &[(&str, &str)]) {
        self.update(resource_type, resources, 1);
    }

    /// The push thread reports a change.
    pub(crate) fn change(&mut self, resource_type: ResourceType, resources: &[(&str, &str)]) {
        self.revision += 1;
        self.update(resource_type, resources, 0);
    }

    fn update(&mut self, resource_type: ResourceType, resources: &[(&str, &str)], answers: u32) {
        let resources = resources
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let collection = collection(resource_type, &resources);
        let update = Update {
            collection,
            revision: self.revision,
            answers,
            reason: Default::default(),
            since: Instant::now(),
        };
        let effects = self
            .session
            .step(Event::Update(resource_type, update), &self.cache);
        if !self.session.bounds.keeps_clusters {
            assert_eq!(effects, []);
        }
    }

    pub(crate) fn next(&mut self) -> Option<SentResponse> {
        let response = self.session.next(self.now, &self.cache)?;
        Some(read(self.session.protocol, &response))
    }

    /// Expects the next response, with this content; returns its nonce.
    #[track_caller]
    pub(crate) fn sends(
        &mut self,
        resource_type: ResourceType,
        resources: &[&str],
        removed: &[&str],
    ) -> String {
        let got = self.next().unwrap_or_else(|| {
            panic!(
                "no response instead of {} {resources:?}",
                resource_type.short_name()
            )
        });
        let expected = (resource_type, strings(resources), strings(removed));
        assert_eq!((got.resource_type, got.resources, got.removed), expected);
        got.nonce
    }

    #[track_caller]
    pub(crate) fn is_silent(&mut self) {
        assert_eq!(self.next(), None);
    }
}

pub(crate) fn read(protocol: Protocol, response: &Response) -> SentResponse {
    let resource_type = response.resource_type.unwrap();
    let resources = match protocol {
        Protocol::Delta => {
            let decoded =
                RawDeltaDiscoveryResponse::decode(response.payload.plain().clone()).unwrap();
            let one = |r: navarch_proto::raw::RawResource| {
                format!(
                    "{}={}",
                    r.name,
                    text_of(resource_type, &r.resource.unwrap().value)
                )
            };
            decoded.resources.into_iter().map(one).collect()
        }
        Protocol::StateOfTheWorld => {
            let decoded = RawDiscoveryResponse::decode(response.payload.plain().clone()).unwrap();
            decoded
                .resources
                .iter()
                .map(|any| text_of(resource_type, &any.value))
                .collect()
        }
    };

    let resources: Vec<String> = resources;
    assert_eq!(resources.len(), response.count);
    let removed = response
        .removed
        .iter()
        .map(|name| name.as_str().to_owned())
        .collect();

    SentResponse {
        resource_type,
        resources,
        removed,
        nonce: response.nonce.to_string(),
    }
}
