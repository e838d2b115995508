//! The protocol of a simulated proxy: responses in, requests out, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use navarch_proto::google::rpc::Status;

use super::held::{Held, HeldResource, Type, name_of};
use super::{Protocol, Spec};

/// The state of a proxy.
#[derive(Debug)]
pub(super) struct State {
    protocol: Protocol,
    /// Whether an agent subscribes to the roots in its place.
    has_agent: bool,
    held: Held,
    /// The names that it subscribes to, of types that are subscribed to by name.
    names: BTreeMap<Type, BTreeSet<String>>,
    /// The last version and nonce of each type (state of the world).
    accepted: BTreeMap<Type, String>,
    nonces: BTreeMap<Type, String>,
    /// The names of the resources of rejected responses that it was not sent again on this stream: in
    /// delta xDS, they come once they have changed.
    rejected: BTreeMap<Type, BTreeSet<String>>,
}

/// A request in either protocol.
#[derive(Clone, Debug)]
pub(super) struct Request {
    kind: Type,
    nonce: String,
    /// Whether the response with the nonce is rejected.
    rejects: bool,
    /// All names (state of the world).
    names: Vec<String>,
    version: String,
    subscribe: Vec<String>,
    unsubscribe: Vec<String>,
    initial_versions: BTreeMap<String, String>,
}

/// A response in either protocol.
#[derive(Clone, Debug)]
pub(super) struct Response {
    kind: Option<Type>,
    version: String,
    nonce: String,
    resources: BTreeMap<String, HeldResource>,
    removed: Vec<String>,
    /// Whether resources that it does not contain stay.
    is_partial: bool,
}

impl State {
    /// A proxy that holds nothing.
    pub(super) fn new(spec: &Spec) -> Self {
        let secrets = spec.secrets.iter().cloned().collect();
        Self {
            protocol: spec.protocol,
            has_agent: spec.has_agent,
            held: Held::default(),
            names: BTreeMap::from([(Type::Secret, secrets)]),
            accepted: BTreeMap::new(),
            nonces: BTreeMap::new(),
            rejected: BTreeMap::new(),
        }
    }

    /// What it holds.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// The types of which it lacks resources that it has rejected, or that were beside these.
    pub(super) fn rejected_types(&self) -> BTreeSet<Type> {
        let rejected = self.rejected.iter().filter(|(_, names)| !names.is_empty());
        rejected.map(|(kind, _)| *kind).collect()
    }

    /// The requests on a new stream: subscriptions with what is held.
    pub(super) fn first_requests(&mut self) -> Vec<Request> {
        self.nonces.clear();
        self.rejected.clear();
        let is_own = |kind: &Type| *kind != Type::ProxyConfig || !self.has_agent;
        let has_names = |kind: &Type| kind.is_wildcard() || !self.subscribed(*kind).is_empty();
        let is_subscribed = |kind: &Type| is_own(kind) && has_names(kind);
        let kinds: Vec<Type> = Type::ALL.into_iter().filter(is_subscribed).collect();
        kinds
            .into_iter()
            .map(|kind| {
                let versions = self
                    .held
                    .of(kind)
                    .map(|(name, resource)| (name.clone(), resource.version.clone()));
                Request {
                    subscribe: self.subscribed(kind),
                    initial_versions: versions.collect(),
                    ..self.request(kind)
                }
            })
            .collect()
    }

    /// Takes a response, or rejects it; returns the requests that follow.
    pub(super) fn take(&mut self, response: Response, rejects: bool) -> Vec<Request> {
        let Some(kind) = response.kind else {
            return Vec::new();
        };
        self.nonces.insert(kind, response.nonce.clone());
        self.note_rejected(kind, &response, rejects);
        if rejects {
            let request = Request {
                rejects: true,
                ..self.request(kind)
            };
            return vec![request];
        }

        self.accepted.insert(kind, response.version.clone());
        let held = self.held.entry(kind);
        if !response.is_partial {
            held.clear();
        }
        for name in &response.removed {
            held.remove(name);
        }
        held.extend(response.resources);
        if !kind.is_wildcard() {
            // What was sent before it unsubscribed.
            let names = self.names.entry(kind).or_default();
            held.retain(|name, _| names.contains(name));
        }

        let mut requests = vec![self.request(kind)];
        match kind {
            Type::Cluster => {
                let names = self.held.endpoint_names();
                requests.extend(self.subscribe(Type::Endpoint, &names));
            }
            Type::Listener => {
                let names = self.held.route_names();
                requests.extend(self.subscribe(Type::Route, &names));
            }
            Type::Endpoint | Type::Route | Type::Secret | Type::ProxyConfig => {}
        }
        requests
    }

    /// Records which resources of a type are rejected after a response.
    fn note_rejected(&mut self, kind: Type, response: &Response, rejects: bool) {
        let rejected = self.rejected.entry(kind).or_default();
        if rejects {
            rejected.extend(response.resources.keys().cloned());
        } else if response.is_partial {
            let is_sent = |name: &String| {
                response.resources.contains_key(name) || response.removed.contains(name)
            };
            rejected.retain(|name| !is_sent(name));
        } else {
            rejected.clear();
        }
    }

    /// Changes the names of a type; returns the request, if they differ.
    fn subscribe(&mut self, kind: Type, names: &BTreeSet<String>) -> Option<Request> {
        let before = self.names.insert(kind, names.clone()).unwrap_or_default();
        if before == *names {
            return None;
        }
        let gone: Vec<String> = before.difference(names).cloned().collect();
        for name in &gone {
            self.held.entry(kind).remove(name);
            self.rejected.entry(kind).or_default().remove(name);
        }
        Some(Request {
            nonce: match self.protocol {
                Protocol::Delta => String::new(),
                Protocol::State => self.nonce(kind),
            },
            subscribe: names.difference(&before).cloned().collect(),
            unsubscribe: gone,
            ..self.request(kind)
        })
    }

    /// A request about the last response of a type.
    fn request(&self, kind: Type) -> Request {
        Request {
            kind,
            nonce: self.nonce(kind),
            rejects: false,
            names: self.subscribed(kind),
            version: self.accepted.get(&kind).cloned().unwrap_or_default(),
            subscribe: Vec::new(),
            unsubscribe: Vec::new(),
            initial_versions: BTreeMap::new(),
        }
    }

    fn nonce(&self, kind: Type) -> String {
        self.nonces.get(&kind).cloned().unwrap_or_default()
    }

    fn subscribed(&self, kind: Type) -> Vec<String> {
        self.names
            .get(&kind)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }
}

impl Request {
    fn error(&self) -> Option<Status> {
        self.rejects.then(|| Status {
            code: 13,
            message: "the simulated proxy rejects it".to_owned(),
            ..Status::default()
        })
    }

    /// The request in delta xDS.
    pub(super) fn delta(self) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            error_detail: self.error(),
            type_url: self.kind.url().to_owned(),
            response_nonce: self.nonce,
            resource_names_subscribe: self.subscribe,
            resource_names_unsubscribe: self.unsubscribe,
            initial_resource_versions: self.initial_versions,
            ..DeltaDiscoveryRequest::default()
        }
    }

    /// The request with the state of the world.
    pub(super) fn state(self) -> DiscoveryRequest {
        DiscoveryRequest {
            error_detail: self.error(),
            type_url: self.kind.url().to_owned(),
            response_nonce: self.nonce,
            resource_names: self.names,
            version_info: self.version,
            ..DiscoveryRequest::default()
        }
    }
}

impl Response {
    pub(super) fn of_delta(response: DeltaDiscoveryResponse) -> Self {
        let resources = response.resources.into_iter().map(|resource| {
            let held = HeldResource {
                version: resource.version,
                bytes: Bytes::from(resource.resource.unwrap_or_default().value),
            };
            (resource.name, held)
        });
        Self {
            kind: Type::of_url(&response.type_url),
            version: response.system_version_info,
            nonce: response.nonce,
            resources: resources.collect(),
            removed: response.removed_resources,
            is_partial: true,
        }
    }

    pub(super) fn of_state(response: DiscoveryResponse) -> Self {
        let kind = Type::of_url(&response.type_url);
        let resources = response.resources.into_iter().map(|any| {
            let name = name_of(&any.value);
            let held = HeldResource {
                version: String::new(),
                bytes: Bytes::from(any.value),
            };
            (name, held)
        });
        Self {
            kind,
            version: response.version_info,
            nonce: response.nonce,
            resources: resources.collect(),
            removed: Vec::new(),
            // Only responses of these types contain all resources.
            is_partial: kind.is_some_and(|kind| !kind.is_wildcard()),
        }
    }

    /// The type of its resources.
    pub(super) fn kind(&self) -> Option<Type> {
        self.kind
    }

    /// Whether a resource contains these bytes.
    pub(super) fn contains(&self, text: &[u8]) -> bool {
        self.resources.values().any(|resource| {
            resource
                .bytes
                .windows(text.len())
                .any(|window| window == text)
        })
    }

    /// In a few words.
    pub(super) fn describe(&self) -> String {
        let names: Vec<&str> = self.resources.keys().map(String::as_str).collect();
        // Keys of roots are random, and so is the length of their signatures.
        let is_repeatable = self.kind() != Some(Type::ProxyConfig);
        let sized = self.resources.values().filter(|_| is_repeatable);
        let bytes: usize = sized.map(|resource| resource.bytes.len()).sum();
        format!(
            "{:?}: {} ({bytes} bytes), removed {:?}",
            self.kind,
            names.join(" "),
            self.removed
        )
    }
}
