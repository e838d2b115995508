//! Random conversations with a proxy that uses its resources: at any moment, every route leads to
//! an existing cluster.

use std::collections::{BTreeMap, BTreeSet};

use navarch_proto::raw::{RawDeltaDiscoveryResponse, RawDiscoveryResponse};
use proptest::prelude::*;
use prost::Message;

use super::super::*;
use super::client::*;
use super::rig::*;
use super::server::*;

/// A sequence of consistent meshes, with partial delivery between them: clusters (name and
/// version), routes to them.
#[derive(Clone, Debug)]
enum Step {
    World(BTreeMap<usize, u8>, Vec<usize>),
    Move(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let world = (
        prop::collection::btree_map(0..4_usize, 0..3_u8, 1..4),
        prop::collection::vec(0..4_usize, 3),
    );
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
    world.insert(
        CDS,
        clusters
            .iter()
            .map(|(c, v)| (name(*c), format!("c{c}={v}")))
            .collect(),
    );

    world.insert(
        EDS,
        clusters
            .keys()
            .map(|c| (name(*c), format!("c{c}=up")))
            .collect(),
    );

    let target = |at: usize| name(*names[at % names.len()]);
    world.insert(
        RDS,
        routes
            .iter()
            .enumerate()
            .map(|(r, at)| (format!("r{r}"), format!("r{r}={}", target(*at))))
            .collect(),
    );

    world.insert(
        LDS,
        BTreeMap::from([("l".to_owned(), format!("l={routes:?}"))]),
    );
}

impl Client {
    /// Applies a response like a proxy: warms clusters, subscribes to their endpoints, uses routes.
    fn use_it(&mut self, response: &Response, before: &BTreeMap<String, (String, String)>) {
        match response.resource_type.unwrap() {
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
                        let decoded =
                            RawDeltaDiscoveryResponse::decode(response.payload.plain().clone())
                                .unwrap();
                        decoded
                            .resources
                            .into_iter()
                            .map(|resource| resource.name)
                            .collect()
                    }
                    Protocol::StateOfTheWorld => {
                        let decoded =
                            RawDiscoveryResponse::decode(response.payload.plain().clone()).unwrap();
                        let name = |any: &navarch_proto::raw::RawAny| {
                            text_of(EDS, &any.value)[..2].to_owned()
                        };
                        decoded.resources.iter().map(name).collect()
                    }
                };

                for name in names {
                    if self.warming.remove(&name) {
                        self.active.insert(name);
                    }
                }
            }
            LDS
            | RDS
            | VHDS
            | SDS
            | ResourceType::ExtensionConfig
            | ResourceType::NameTable
            | ResourceType::ProxyConfig
            | ResourceType::Bootstrap
            | ResourceType::Locality
            | ResourceType::ObjectStatus
            | ResourceType::Address
            | ResourceType::Workload
            | ResourceType::Authorization
            | ResourceType::Object(_) => {}
        }

        for (route, (body, _)) in &self.have[&RDS].resources {
            let (_, cluster) = body.split_once('=').unwrap();
            assert!(
                self.active.contains(cluster),
                "{route} goes to {cluster}, of {:?}",
                self.active
            );
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
            request
                .into_iter()
                .for_each(|request| server.request(request));
            if !heard && !server.send() && !read(server, client) && server.commands.is_empty() {
                return;
            }
        }
    };

    // In the order of Envoy's start: clusters, their endpoints, listeners, routes.
    for resource_type in [CDS, LDS] {
        match protocol {
            Protocol::Delta => client.toggle_wildcard(resource_type),
            Protocol::StateOfTheWorld => {
                client.have.get_mut(&resource_type).unwrap().wildcard = true;
                client.say_state(resource_type, None);
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
            Step::World(clusters, routes) => {
                server.change(|world| set_world(world, &clusters, &routes))
            }
            Step::Move(0) => server.push_thread(),
            Step::Move(1) => client
                .to_server
                .pop_front()
                .into_iter()
                .for_each(|request| server.request(request)),
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

    for resource_type in TYPES {
        let has: BTreeMap<&String, &String> = client.have[&resource_type]
            .resources
            .iter()
            .map(|(name, (body, _))| (name, body))
            .collect();
        assert_eq!(
            has,
            server.world[&resource_type].iter().collect(),
            "{resource_type:?}"
        );
    }

    assert_eq!(client.warming, BTreeSet::new());
}

proptest! {
    #[test]
    fn a_delta_proxy_never_routes_to_a_cluster_that_it_cannot_use(steps in steps()) {
        route(Protocol::Delta, steps);
    }

    #[test]
    fn a_state_of_the_world_proxy_never_routes_to_a_cluster_that_it_cannot_use(steps in steps()) {
        route(Protocol::StateOfTheWorld, steps);
    }
}
