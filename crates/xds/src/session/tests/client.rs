//! The client's side of a conversation: it keeps the received resources, as proxies do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use navarch_proto::google::rpc::Status as ErrorDetail;
use navarch_proto::raw::{RawDeltaDiscoveryResponse, RawDiscoveryResponse};
use prost::Message;

use super::super::*;
use super::rig::*;
use crate::session::discovery_request::Wire;

/// A client's subscription and resources of one type.
#[derive(Debug, Default)]
pub(crate) struct Have {
    pub(crate) wildcard: bool,
    pub(crate) names: BTreeSet<String>,
    /// Body and version.
    pub(crate) resources: BTreeMap<String, (String, String)>,
    /// Whether it has subscribed to the type on this stream.
    pub(crate) begun: bool,
    pub(crate) nonce: String,
}

/// A client of either protocol. Its requests reach the server in order; the test decides when.
pub(crate) struct Client {
    pub(crate) protocol: Protocol,
    pub(crate) have: BTreeMap<ResourceType, Have>,
    pub(crate) to_server: VecDeque<Request>,
    /// Endpoint sets that its clusters wait for, and clusters that it can send to (only in
    /// conversations about order).
    pub(crate) warming: BTreeSet<String>,
    pub(crate) active: BTreeSet<String>,
    /// Of a delta client that rejects bad clusters and listeners.
    pub(crate) rejections: Option<Rejections>,
}

/// What a client has rejected.
#[derive(Debug, Default)]
pub(crate) struct Rejections {
    /// The content of what it has named first, and was not sent otherwise since.
    first: BTreeMap<(ResourceType, String), String>,
    /// What it may be sent again as it is: the client has subscribed to it anew, or it was removed.
    excused: BTreeSet<(ResourceType, String)>,
}

/// Whether a client rejects a cluster or a listener with this content.
pub(crate) fn is_bad(body: &str) -> bool {
    body.ends_with("=4")
}

pub(crate) const TYPES: [ResourceType; 4] = [CDS, EDS, LDS, RDS];
pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "z"];

impl Client {
    pub(crate) fn new(protocol: Protocol) -> Self {
        let have = TYPES
            .into_iter()
            .map(|resource_type| (resource_type, Have::default()))
            .collect();
        let warming = BTreeSet::new();
        let active = BTreeSet::new();
        Self {
            protocol,
            have,
            to_server: VecDeque::new(),
            warming,
            active,
            rejections: None,
        }
    }

    /// Allows that resources are sent again that the client has rejected.
    pub(crate) fn excuse(&mut self, resource_type: ResourceType, names: &[&str]) {
        if let Some(rejections) = &mut self.rejections {
            let names = names.iter().map(|name| (resource_type, (*name).to_owned()));
            rejections.excused.extend(names);
        }
    }

    /// Adds a name to the subscription, or removes it.
    pub(crate) fn toggle(&mut self, resource_type: ResourceType, name: &str) {
        self.excuse(resource_type, &[name]);
        let have = self.have.get_mut(&resource_type).unwrap();
        let more = have.names.insert(name.to_owned());
        if !more {
            have.names.remove(name);
            if !have.wildcard {
                have.resources.remove(name);
            }
        }
        match self.protocol {
            Protocol::Delta => {
                self.say_delta(resource_type, more.then_some(name), (!more).then_some(name))
            }
            Protocol::StateOfTheWorld => self.say_state(resource_type, None),
        }
    }

    /// Starts or ends a wildcard subscription.
    pub(crate) fn toggle_wildcard(&mut self, resource_type: ResourceType) {
        self.excuse(resource_type, &NAMES);
        let have = self.have.get_mut(&resource_type).unwrap();
        have.wildcard = !have.wildcard;
        let star = Some("*");
        if have.wildcard {
            self.say_delta(resource_type, star, None);
        } else {
            let Have {
                resources, names, ..
            } = have;
            resources.retain(|name, _| names.contains(name));
            self.say_delta(resource_type, None, star);
        }
    }

    pub(crate) fn say_delta(
        &mut self,
        resource_type: ResourceType,
        more: Option<&str>,
        less: Option<&str>,
    ) {
        let have = self.have.get_mut(&resource_type).unwrap();
        let mut subscribe: Vec<String> = more.iter().map(|name| (*name).to_owned()).collect();
        let mut unsubscribe: Vec<String> = less.iter().map(|name| (*name).to_owned()).collect();
        if !have.begun
            && resource_type.is_wildcard_by_default()
            && !have.wildcard
            && subscribe.is_empty()
        {
            // A stream that starts without resources subscribes to `*`.
            subscribe = vec!["*".to_owned()];
            unsubscribe = subscribe.clone();
        }
        have.begun = true;
        let request = DeltaDiscoveryRequest {
            type_url: resource_type.type_url().to_owned(),
            resource_names_subscribe: subscribe,
            resource_names_unsubscribe: unsubscribe,
            ..DeltaDiscoveryRequest::default()
        };
        self.to_server.push_back(request.parse().unwrap());
    }

    pub(crate) fn say_state(&mut self, resource_type: ResourceType, error: Option<ErrorDetail>) {
        let have = self.have.get_mut(&resource_type).unwrap();
        have.begun = !have.names.is_empty() || resource_type.is_wildcard_by_default();
        let nonce = have.nonce.clone();
        if !have.begun {
            have.nonce.clear();
        }
        let request = DiscoveryRequest {
            type_url: resource_type.type_url().to_owned(),
            resource_names: have.names.iter().cloned().collect(),
            response_nonce: nonce,
            error_detail: error,
            ..DiscoveryRequest::default()
        };
        self.to_server.push_back(request.parse().unwrap());
    }

    /// Starts a new stream with its resources.
    pub(crate) fn come_back(&mut self) {
        self.to_server.clear();
        if let Some(rejections) = &mut self.rejections {
            rejections.first.clear();
        }

        for resource_type in TYPES {
            let have = self.have.get_mut(&resource_type).unwrap();
            have.nonce.clear();
            have.begun = false;
            if !have.wildcard && have.names.is_empty() {
                continue;
            }

            if self.protocol == Protocol::StateOfTheWorld {
                self.say_state(resource_type, None);
                continue;
            }

            have.begun = true;
            let star = have.wildcard.then(|| "*".to_owned());
            let versions = have
                .resources
                .iter()
                .map(|(name, (_, version))| (name.clone(), version.clone()));
            let request = DeltaDiscoveryRequest {
                type_url: resource_type.type_url().to_owned(),
                resource_names_subscribe: have.names.iter().cloned().chain(star).collect(),
                initial_resource_versions: versions.collect(),
                ..DeltaDiscoveryRequest::default()
            };

            self.to_server.push_back(request.parse().unwrap());
        }
    }

    /// Handles a response; rejects it after `taken` resources if that is given.
    pub(crate) fn receive(&mut self, response: &Response, taken: Option<usize>) {
        let resource_type = response.resource_type.unwrap();
        if self.rejections.is_some() && matches!(resource_type, CDS | LDS) {
            self.receive_good(resource_type, response);
            return;
        }

        let limit = taken.unwrap_or(usize::MAX);
        let error = taken.map(|_| ErrorDetail {
            code: 13,
            message: "no".to_owned(),
            details: Vec::new(),
        });
        let have = self.have.get_mut(&resource_type).unwrap();
        have.nonce = response.nonce.to_string();

        match self.protocol {
            Protocol::Delta => {
                have.receive_delta(resource_type, response, limit);
                let request = DeltaDiscoveryRequest {
                    type_url: resource_type.type_url().to_owned(),
                    response_nonce: response.nonce.to_string(),
                    error_detail: error,
                    ..DeltaDiscoveryRequest::default()
                };
                self.to_server.push_back(request.parse().unwrap());
            }
            Protocol::StateOfTheWorld => {
                if have.begun {
                    have.receive_state(resource_type, response, limit);
                    self.say_state(resource_type, error);
                }
            }
        }
    }
}

impl Client {
    /// Handles a response as Envoy does: it takes all resources but the bad ones, and names these.
    fn receive_good(&mut self, resource_type: ResourceType, response: &Response) {
        let have = self.have.get_mut(&resource_type).unwrap();
        let rejections = self.rejections.as_mut().unwrap();
        let decoded = RawDeltaDiscoveryResponse::decode(response.payload.plain().clone()).unwrap();
        let mut bad = Vec::new();

        for resource in decoded.resources {
            let body = text_of(resource_type, &resource.resource.unwrap().value);
            let key = (resource_type, resource.name.clone());
            let rejected = rejections.first.remove(&key);
            assert!(
                rejected.as_ref() != Some(&body) || rejections.excused.contains(&key),
                "{body} was rejected and is sent again"
            );

            if !have.wildcard && !have.names.contains(&resource.name) {
                continue;
            }
            if is_bad(&body) {
                bad.push((resource.name, body));
            } else {
                have.resources
                    .insert(resource.name, (body, resource.version));
            }
        }

        for name in &response.removed {
            have.resources.remove(name.as_str());
            rejections
                .first
                .remove(&(resource_type, name.as_str().to_owned()));
        }

        let errors: Vec<String> = bad.iter().map(|(name, _)| format!("{name}: bad")).collect();
        let what = if resource_type == CDS {
            "cluster(s)"
        } else {
            "listener(s)"
        };
        let error_detail = (!bad.is_empty()).then(|| ErrorDetail {
            code: 13,
            message: format!("Error adding/updating {what} {}", errors.join(", ")),
            details: Vec::new(),
        });
        if let Some((name, body)) = bad.into_iter().next() {
            rejections.first.insert((resource_type, name), body);
        }

        let request = DeltaDiscoveryRequest {
            type_url: resource_type.type_url().to_owned(),
            response_nonce: response.nonce.to_string(),
            error_detail,
            ..DeltaDiscoveryRequest::default()
        };
        self.to_server.push_back(request.parse().unwrap());
    }
}

impl Have {
    pub(crate) fn receive_delta(
        &mut self,
        resource_type: ResourceType,
        response: &Response,
        limit: usize,
    ) {
        let decoded = RawDeltaDiscoveryResponse::decode(response.payload.plain().clone()).unwrap();
        let mut seen: BTreeSet<String> = response
            .removed
            .iter()
            .map(|name| name.as_str().to_owned())
            .collect();

        for (at, resource) in decoded.resources.into_iter().enumerate() {
            assert!(
                seen.insert(resource.name.clone()),
                "{} twice in a response",
                resource.name
            );
            if at < limit && (self.wildcard || self.names.contains(&resource.name)) {
                let body = text_of(resource_type, &resource.resource.unwrap().value);
                self.resources
                    .insert(resource.name, (body, resource.version));
            }
        }

        for name in response.removed.iter().take(limit) {
            self.resources.remove(name.as_str());
        }
    }

    pub(crate) fn receive_state(
        &mut self,
        resource_type: ResourceType,
        response: &Response,
        limit: usize,
    ) {
        let decoded = RawDiscoveryResponse::decode(response.payload.plain().clone()).unwrap();
        if resource_type.is_wildcard_by_default() && limit == usize::MAX {
            self.resources.clear();
        }
        for any in decoded.resources.into_iter().take(limit) {
            // Bodies begin with the resource's name.
            let text = text_of(resource_type, &any.value);
            let (name, _) = text.split_once('=').unwrap();
            if resource_type.is_wildcard_by_default() || self.names.contains(name) {
                self.resources
                    .insert(name.to_owned(), (text.clone(), String::new()));
            }
        }
    }
}
