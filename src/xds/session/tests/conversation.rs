//! Random conversations with clients that behave as proxies do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use navarch_proto::google::rpc::Status as ErrorDetail;
use navarch_proto::raw::{RawDeltaDiscoveryResponse, RawDiscoveryResponse};
use proptest::prelude::*;
use prost::Message;

use super::super::*;
use super::rig::*;
use crate::push::engine::{PushCause, Sink};
use crate::push::fact::FactKey;
use crate::xds::mailbox::Mailbox;
use crate::xds::request::Wire;

/// All resources, by type and name.
type World = BTreeMap<ResourceType, BTreeMap<String, String>>;

/// A session with the push thread behind it and a wire before it, each as slow as the test wants.
struct Server {
    rig: Rig,
    mailbox: Mailbox,
    world: World,
    /// What the push thread has yet to do.
    commands: VecDeque<Effect>,
    shown: BTreeMap<ResourceType, (Interest, Arc<Collection>)>,
    to_client: VecDeque<Response>,
}

impl Server {
    fn new(protocol: Protocol) -> Self {
        Self {
            rig: Rig::new(protocol),
            mailbox: Mailbox::default(),
            world: World::new(),
            commands: VecDeque::new(),
            shown: BTreeMap::new(),
            to_client: VecDeque::new(),
        }
    }

    /// The client's stream broke; it makes a new one.
    fn restart(&mut self) {
        let mut fresh = Self::new(self.rig.session.protocol);
        fresh.world = std::mem::take(&mut self.world);
        fresh.rig.revision = self.rig.revision;
        fresh.rig.session.marks.stream = self.rig.session.marks.stream + 1;
        *self = fresh;
    }

    fn request(&mut self, request: Request) {
        let effects = self.rig.request(request);
        self.commands.extend(effects);
    }

    fn look_up(&self, kind: ResourceType, interest: &Interest) -> Arc<Collection> {
        let all = self.world.get(&kind).cloned().unwrap_or_default();
        let shown =
            all.into_iter().filter(|(name, _)| interest.wildcard || interest.names.contains(name.as_str())).collect();
        collection(kind, &shown)
    }

    /// The push thread does one thing.
    fn push_thread(&mut self) {
        match self.commands.pop_front() {
            Some(Effect::Subscribe(kind, interest)) => {
                let collection = self.look_up(kind, &interest);
                self.shown.insert(kind, (interest, collection.clone()));
                let cause = PushCause { revision: self.rig.revision, changed: Vec::new() };
                self.mailbox.publish(kind, collection, &Arc::new(cause));
            }
            Some(Effect::Unsubscribe(kind)) => {
                self.shown.remove(&kind);
            }
            Some(Effect::Rejected(..) | Effect::Stale(_) | Effect::Refuse(_)) | None => {}
        }
    }

    /// The world changes.
    fn change(&mut self, edit: impl FnOnce(&mut World)) {
        edit(&mut self.world);
        self.rig.revision += 1;
        let cause = Arc::new(PushCause { revision: self.rig.revision, changed: vec![FactKey::Mesh] });
        let mut shown = std::mem::take(&mut self.shown);
        // In an order of no meaning, as the engine does.
        for (kind, (interest, old)) in shown.iter_mut().rev() {
            let new = self.look_up(*kind, interest);
            if *new != **old {
                *old = new.clone();
                self.mailbox.publish(*kind, new, &cause);
            }
        }
        self.shown = shown;
        self.mailbox.settled();
    }

    fn take_mail(&mut self) {
        for (kind, mail) in self.mailbox.take() {
            self.rig.session.step(Event::Mail(kind, mail), &self.rig.frames);
        }
    }

    fn send(&mut self) -> bool {
        self.take_mail();
        let response = self.rig.session.next(self.rig.now, &self.rig.frames);
        let sent = response.is_some();
        self.to_client.extend(response);
        sent
    }
}

/// What a client wants and has of one type.
#[derive(Debug, Default)]
struct Have {
    wildcard: bool,
    names: BTreeSet<String>,
    /// Body and version.
    resources: BTreeMap<String, (String, String)>,
    /// Whether the type was asked for on this stream.
    begun: bool,
    nonce: String,
}

/// A client of either protocol. Its requests reach the server in order, as late as the test wants.
struct Client {
    protocol: Protocol,
    have: BTreeMap<ResourceType, Have>,
    to_server: VecDeque<Request>,
    /// Endpoint sets that its clusters wait for, and clusters that it can send to (only in conversations about order).
    warming: BTreeSet<String>,
    active: BTreeSet<String>,
}

const KINDS: [ResourceType; 4] = [CDS, EDS, LDS, RDS];
const NAMES: [&str; 4] = ["a", "b", "c", "z"];

impl Client {
    fn new(protocol: Protocol) -> Self {
        let have = KINDS.into_iter().map(|kind| (kind, Have::default())).collect();
        let (warming, active) = (BTreeSet::new(), BTreeSet::new());
        Self { protocol, have, to_server: VecDeque::new(), warming, active }
    }

    /// Wants a name more, or, if it wants it already, less.
    fn toggle(&mut self, kind: ResourceType, name: &str) {
        let have = self.have.get_mut(&kind).unwrap();
        let more = have.names.insert(name.to_owned());
        if !more {
            have.names.remove(name);
            if !have.wildcard {
                have.resources.remove(name);
            }
        }
        match self.protocol {
            Protocol::Delta => self.say_delta(kind, more.then_some(name), (!more).then_some(name)),
            Protocol::StateOfTheWorld => self.say_state(kind, None),
        }
    }

    /// Wants everything, or no longer.
    fn toggle_wildcard(&mut self, kind: ResourceType) {
        let have = self.have.get_mut(&kind).unwrap();
        have.wildcard = !have.wildcard;
        let star = Some("*");
        if have.wildcard {
            self.say_delta(kind, star, None);
        } else {
            let Have { resources, names, .. } = have;
            resources.retain(|name, _| names.contains(name));
            self.say_delta(kind, None, star);
        }
    }

    fn say_delta(&mut self, kind: ResourceType, more: Option<&str>, less: Option<&str>) {
        let have = self.have.get_mut(&kind).unwrap();
        let mut subscribe: Vec<String> = more.iter().map(|name| (*name).to_owned()).collect();
        let mut unsubscribe: Vec<String> = less.iter().map(|name| (*name).to_owned()).collect();
        if !have.begun && kind.is_wildcard_by_default() && !have.wildcard && subscribe.is_empty() {
            // The way to begin with nothing.
            subscribe = vec!["*".to_owned()];
            unsubscribe = subscribe.clone();
        }
        have.begun = true;
        let request = DeltaDiscoveryRequest {
            type_url: kind.type_url().to_owned(),
            resource_names_subscribe: subscribe,
            resource_names_unsubscribe: unsubscribe,
            ..DeltaDiscoveryRequest::default()
        };
        self.to_server.push_back(request.parse().unwrap());
    }

    fn say_state(&mut self, kind: ResourceType, error: Option<ErrorDetail>) {
        let have = self.have.get_mut(&kind).unwrap();
        have.begun = !have.names.is_empty() || kind.is_wildcard_by_default();
        let nonce = have.nonce.clone();
        if !have.begun {
            have.nonce.clear();
        }
        let request = DiscoveryRequest {
            type_url: kind.type_url().to_owned(),
            resource_names: have.names.iter().cloned().collect(),
            response_nonce: nonce,
            error_detail: error,
            ..DiscoveryRequest::default()
        };
        self.to_server.push_back(request.parse().unwrap());
    }

    /// Begins again on a new stream, with what it has.
    fn come_back(&mut self) {
        self.to_server.clear();
        for kind in KINDS {
            let have = self.have.get_mut(&kind).unwrap();
            have.nonce.clear();
            have.begun = false;
            if !have.wildcard && have.names.is_empty() {
                continue;
            }
            if self.protocol == Protocol::StateOfTheWorld {
                self.say_state(kind, None);
                continue;
            }
            have.begun = true;
            let star = have.wildcard.then(|| "*".to_owned());
            let versions = have.resources.iter().map(|(name, (_, version))| (name.clone(), version.clone()));
            let request = DeltaDiscoveryRequest {
                type_url: kind.type_url().to_owned(),
                resource_names_subscribe: have.names.iter().cloned().chain(star).collect(),
                initial_resource_versions: versions.collect(),
                ..DeltaDiscoveryRequest::default()
            };
            self.to_server.push_back(request.parse().unwrap());
        }
    }

    /// Takes a response; rejects it after `taken` resources if that is given.
    fn receive(&mut self, response: &Response, taken: Option<usize>) {
        let kind = response.kind.unwrap();
        let limit = taken.unwrap_or(usize::MAX);
        let error = taken.map(|_| ErrorDetail { code: 13, message: "no".to_owned(), details: Vec::new() });
        let have = self.have.get_mut(&kind).unwrap();
        have.nonce = response.nonce.to_string();
        match self.protocol {
            Protocol::Delta => {
                have.receive_delta(kind, response, limit);
                let request = DeltaDiscoveryRequest {
                    type_url: kind.type_url().to_owned(),
                    response_nonce: response.nonce.to_string(),
                    error_detail: error,
                    ..DeltaDiscoveryRequest::default()
                };
                self.to_server.push_back(request.parse().unwrap());
            }
            Protocol::StateOfTheWorld => {
                if have.begun {
                    have.receive_state(kind, response, limit);
                    self.say_state(kind, error);
                }
            }
        }
    }
}

impl Have {
    fn receive_delta(&mut self, kind: ResourceType, response: &Response, limit: usize) {
        let decoded = RawDeltaDiscoveryResponse::decode(response.payload.clone()).unwrap();
        let mut seen: BTreeSet<String> = response.removed.iter().map(|name| name.as_str().to_owned()).collect();
        for (at, resource) in decoded.resources.into_iter().enumerate() {
            assert!(seen.insert(resource.name.clone()), "{} twice in a response", resource.name);
            if at < limit && (self.wildcard || self.names.contains(&resource.name)) {
                let body = text_of(kind, &resource.resource.unwrap().value);
                self.resources.insert(resource.name, (body, resource.version));
            }
        }
        for name in response.removed.iter().take(limit) {
            self.resources.remove(name.as_str());
        }
    }

    fn receive_state(&mut self, kind: ResourceType, response: &Response, limit: usize) {
        let decoded = RawDiscoveryResponse::decode(response.payload.clone()).unwrap();
        if kind.is_wildcard_by_default() && limit == usize::MAX {
            self.resources.clear();
        }
        for any in decoded.resources.into_iter().take(limit) {
            // Bodies begin with the resource's name.
            let text = text_of(kind, &any.value);
            let (name, _) = text.split_once('=').unwrap();
            if kind.is_wildcard_by_default() || self.names.contains(name) {
                self.resources.insert(name.to_owned(), (text.clone(), String::new()));
            }
        }
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Op {
    Change(Vec<(usize, usize, Option<u8>)>),
    Toggle(usize, usize),
    ToggleWildcard(usize),
    ServerReads,
    PushThread,
    Send,
    ClientReads(Option<usize>),
    Wait(u64),
    ComeBack,
}

fn ops(steps: usize) -> impl Strategy<Value = Vec<Op>> {
    let edit = (0..KINDS.len(), 0..NAMES.len(), prop::option::weighted(0.7, 0..5_u8));
    let op = prop_oneof![
        3 => prop::collection::vec(edit, 1..6).prop_map(Op::Change),
        3 => (0..KINDS.len(), 0..NAMES.len()).prop_map(|(kind, name)| Op::Toggle(kind, name)),
        1 => (0..KINDS.len()).prop_map(Op::ToggleWildcard),
        6 => Just(Op::ServerReads),
        6 => Just(Op::PushThread),
        6 => Just(Op::Send),
        6 => prop::option::weighted(0.2, 0..3_usize).prop_map(Op::ClientReads),
        1 => (1..4_u64).prop_map(Op::Wait),
        1 => Just(Op::ComeBack),
    ];
    prop::collection::vec(op, 0..steps)
}

fn edit(world: &mut World, kind: ResourceType, name: &str, value: Option<String>) {
    let all = world.entry(kind).or_default();
    match value {
        Some(value) => all.insert(name.to_owned(), format!("{name}={value}")),
        None => all.remove(name),
    };
}

/// Lets everything that is under way arrive.
fn settle(server: &mut Server, client: &mut Client) {
    for _ in 0..40 {
        loop {
            let mut moved = !server.commands.is_empty();
            while !server.commands.is_empty() {
                server.push_thread();
            }
            while let Some(request) = client.to_server.pop_front() {
                server.request(request);
                moved = true;
            }
            moved |= server.send();
            while let Some(response) = server.to_client.pop_front() {
                client.receive(&response, None);
                moved = true;
            }
            if !moved {
                break;
            }
        }
        match server.rig.session.wake_at(server.rig.now) {
            Some(at) => server.rig.now = at,
            None => return,
        }
    }
    panic!("it does not come to rest");
}

fn converse(protocol: Protocol, ops: Vec<Op>) {
    let mut server = Server::new(protocol);
    let mut client = Client::new(protocol);
    if protocol == Protocol::StateOfTheWorld {
        for kind in [CDS, LDS] {
            client.have.get_mut(&kind).unwrap().wildcard = true;
            client.say_state(kind, None);
        }
    }
    for op in ops {
        match op {
            Op::Change(edits) => server.change(|world| {
                for (kind, name, value) in edits {
                    edit(world, KINDS[kind], NAMES[name], value.map(|value| value.to_string()));
                }
            }),
            Op::Toggle(kind, _) if protocol == Protocol::StateOfTheWorld && KINDS[kind].is_wildcard_by_default() => {}
            Op::Toggle(kind, name) => client.toggle(KINDS[kind], NAMES[name]),
            Op::ToggleWildcard(kind) if protocol == Protocol::Delta => client.toggle_wildcard(KINDS[kind]),
            Op::ToggleWildcard(_) => {}
            Op::ServerReads => client.to_server.pop_front().into_iter().for_each(|request| server.request(request)),
            Op::PushThread => server.push_thread(),
            Op::Send => {
                server.send();
            }
            Op::ClientReads(taken) => {
                if let Some(response) = server.to_client.pop_front() {
                    client.receive(&response, taken);
                }
            }
            Op::Wait(seconds) => server.rig.now += Duration::from_secs(seconds),
            Op::ComeBack => {
                server.restart();
                client.come_back();
            }
        }
    }
    settle(&mut server, &mut client);
    // What was rejected comes with the next change of its type, of which everybody gets to hear.
    for kind in KINDS {
        let have = &client.have[&kind];
        if !have.names.contains("z") && !have.wildcard {
            client.toggle(kind, "z");
        }
    }
    settle(&mut server, &mut client);
    server.change(|world| KINDS.into_iter().for_each(|kind| edit(world, kind, "z", Some("last".to_owned()))));
    settle(&mut server, &mut client);
    for kind in KINDS {
        let have = &client.have[&kind];
        let has: BTreeMap<&String, &String> = have.resources.iter().map(|(name, (body, _))| (name, body)).collect();
        let shall = server.world[&kind].iter().filter(|(name, _)| have.wildcard || have.names.contains(*name));
        let shall: BTreeMap<&String, &String> = shall.collect();
        if protocol == Protocol::Delta || kind.is_wildcard_by_default() {
            assert_eq!(has, shall, "{kind:?}");
        } else {
            // What is gone of named types is not told in this protocol.
            let still: BTreeMap<&String, &String> =
                has.into_iter().filter(|(name, _)| shall.contains_key(name)).collect();
            assert_eq!(still, shall, "{kind:?}");
        }
        assert!(server.rig.session.is_quiet(kind));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_delta_client_ends_up_with_what_there_is(ops in ops(80)) {
        converse(Protocol::Delta, ops);
    }

    #[test]
    fn a_state_of_the_world_client_ends_up_with_what_there_is(ops in ops(80)) {
        converse(Protocol::StateOfTheWorld, ops);
    }

    #[test]
    fn a_delta_proxy_never_routes_to_a_cluster_that_it_cannot_use(steps in steps()) {
        route(Protocol::Delta, steps);
    }

    #[test]
    fn a_state_of_the_world_proxy_never_routes_to_a_cluster_that_it_cannot_use(steps in steps()) {
        route(Protocol::StateOfTheWorld, steps);
    }
}

/// Consistent worlds one after another, and how far things get between: clusters (name and version), routes to them.
#[derive(Clone, Debug)]
enum Step {
    World(BTreeMap<usize, u8>, Vec<usize>),
    Move(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let world = (prop::collection::btree_map(0..4_usize, 0..3_u8, 1..4), prop::collection::vec(0..4_usize, 3));
    let step = prop_oneof![
        1 => world.prop_map(|(clusters, routes)| Step::World(clusters, routes)),
        8 => (0..4_u8).prop_map(Step::Move),
    ];
    prop::collection::vec(step, 0..120)
}

/// Clusters, their endpoints, and routes to them, as one change.
fn set_world(world: &mut World, clusters: &BTreeMap<usize, u8>, routes: &[usize]) {
    let names: Vec<&usize> = clusters.keys().collect();
    let name = |cluster: usize| format!("c{cluster}");
    world.insert(CDS, clusters.iter().map(|(c, v)| (name(*c), format!("c{c}={v}"))).collect());
    world.insert(EDS, clusters.keys().map(|c| (name(*c), format!("c{c}=up"))).collect());
    let target = |at: usize| name(*names[at % names.len()]);
    world.insert(
        RDS,
        routes.iter().enumerate().map(|(r, at)| (format!("r{r}"), format!("r{r}={}", target(*at)))).collect(),
    );
    world.insert(LDS, BTreeMap::from([("l".to_owned(), format!("l={routes:?}"))]));
}

impl Client {
    /// What a proxy does with a response beyond storing it: warms clusters, watches their endpoints, uses routes.
    fn use_it(&mut self, response: &Response, before: &BTreeMap<String, (String, String)>) {
        match response.kind.unwrap() {
            CDS => {
                let now = self.have[&CDS].resources.clone();
                for (name, body) in &now {
                    if before.get(name).map(|(body, _)| body) != Some(&body.0) {
                        self.warming.insert(name.clone());
                        if !self.have[&EDS].names.contains(name) {
                            self.toggle(EDS, name);
                        }
                    }
                }
                for name in before.keys().filter(|name| !now.contains_key(*name)) {
                    self.warming.remove(name);
                    self.active.remove(name);
                    self.toggle(EDS, name);
                }
            }
            EDS => {
                let names: Vec<String> = match self.protocol {
                    Protocol::Delta => {
                        let decoded = RawDeltaDiscoveryResponse::decode(response.payload.clone()).unwrap();
                        decoded.resources.into_iter().map(|resource| resource.name).collect()
                    }
                    Protocol::StateOfTheWorld => {
                        let decoded = RawDiscoveryResponse::decode(response.payload.clone()).unwrap();
                        let name = |any: &navarch_proto::raw::RawAny| text_of(EDS, &any.value)[..2].to_owned();
                        decoded.resources.iter().map(name).collect()
                    }
                };
                for name in names {
                    if self.warming.remove(&name) {
                        self.active.insert(name);
                    }
                }
            }
            _ => {}
        }
        for (route, (body, _)) in &self.have[&RDS].resources {
            let (_, cluster) = body.split_once('=').unwrap();
            assert!(self.active.contains(cluster), "{route} goes to {cluster}, of {:?}", self.active);
        }
    }
}

fn route(protocol: Protocol, steps: Vec<Step>) {
    let mut server = Server::new(protocol);
    let mut client = Client::new(protocol);
    server.change(|world| set_world(world, &BTreeMap::from([(0, 0)]), &[0, 0, 0]));
    let read = |server: &mut Server, client: &mut Client| {
        if let Some(response) = server.to_client.pop_front() {
            let before = client.have[&CDS].resources.clone();
            client.receive(&response, None);
            client.use_it(&response, &before);
            return true;
        }
        false
    };
    let calm = |server: &mut Server, client: &mut Client| {
        loop {
            while !server.commands.is_empty() {
                server.push_thread();
            }
            let request = client.to_server.pop_front();
            let heard = request.is_some();
            request.into_iter().for_each(|request| server.request(request));
            if !heard && !server.send() && !read(server, client) && server.commands.is_empty() {
                return;
            }
        }
    };
    // As Envoy starts: clusters, their endpoints, listeners, routes.
    for kind in [CDS, LDS] {
        match protocol {
            Protocol::Delta => client.toggle_wildcard(kind),
            Protocol::StateOfTheWorld => {
                client.have.get_mut(&kind).unwrap().wildcard = true;
                client.say_state(kind, None);
            }
        }
        calm(&mut server, &mut client);
    }
    for name in ["r0", "r1", "r2"] {
        client.toggle(RDS, name);
    }
    calm(&mut server, &mut client);
    for step in steps {
        match step {
            Step::World(clusters, routes) => server.change(|world| set_world(world, &clusters, &routes)),
            Step::Move(0) => server.push_thread(),
            Step::Move(1) => client.to_server.pop_front().into_iter().for_each(|request| server.request(request)),
            Step::Move(2) => {
                server.send();
            }
            Step::Move(_) => {
                read(&mut server, &mut client);
            }
        }
    }
    calm(&mut server, &mut client);
    assert_eq!(server.rig.now, Duration::ZERO);
    for kind in KINDS {
        let has: BTreeMap<&String, &String> =
            client.have[&kind].resources.iter().map(|(name, (body, _))| (name, body)).collect();
        assert_eq!(has, server.world[&kind].iter().collect(), "{kind:?}");
    }
    assert_eq!(client.warming, BTreeSet::new());
}
