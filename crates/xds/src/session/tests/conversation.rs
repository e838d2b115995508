//! Random conversations: the client always ends up with the server's resources.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::client::*;
use super::rig::*;
use super::server::*;

/// A random event.
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
    let edit = (
        0..TYPES.len(),
        0..NAMES.len(),
        prop::option::weighted(0.7, 0..5_u8),
    );
    let op = prop_oneof![
        3 => prop::collection::vec(edit, 1..6).prop_map(Op::Change),
        3 => (0..TYPES.len(), 0..NAMES.len())
            .prop_map(|(resource_type, name)| Op::Toggle(resource_type, name)),
        1 => (0..TYPES.len()).prop_map(Op::ToggleWildcard),
        6 => Just(Op::ServerReads),
        6 => Just(Op::PushThread),
        6 => Just(Op::Send),
        6 => prop::option::weighted(0.2, 0..3_usize).prop_map(Op::ClientReads),
        1 => (1..4_u64).prop_map(Op::Wait),
        1 => Just(Op::ComeBack),
    ];
    prop::collection::vec(op, 0..steps)
}

fn edit(world: &mut World, resource_type: ResourceType, name: &str, value: Option<String>) {
    let all = world.entry(resource_type).or_default();
    match value {
        Some(value) => all.insert(name.to_owned(), format!("{name}={value}")),
        None => all.remove(name),
    };
}

/// Delivers all messages in flight.
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

    panic!("the conversation does not end");
}

fn converse(protocol: Protocol, ops: Vec<Op>) {
    let mut server = Server::new(protocol);
    let mut client = Client::new(protocol);

    if protocol == Protocol::StateOfTheWorld {
        for resource_type in [CDS, LDS] {
            client.have.get_mut(&resource_type).unwrap().wildcard = true;
            client.say_state(resource_type, None);
        }
    }

    for op in ops {
        match op {
            Op::Change(edits) => server.change(|world| {
                for (resource_type, name, value) in edits {
                    edit(
                        world,
                        TYPES[resource_type],
                        NAMES[name],
                        value.map(|value| value.to_string()),
                    );
                }
            }),
            Op::Toggle(resource_type, _)
                if protocol == Protocol::StateOfTheWorld
                    && TYPES[resource_type].is_wildcard_by_default() => {}
            Op::Toggle(resource_type, name) => client.toggle(TYPES[resource_type], NAMES[name]),
            Op::ToggleWildcard(resource_type) if protocol == Protocol::Delta => {
                client.toggle_wildcard(TYPES[resource_type])
            }
            Op::ToggleWildcard(_) => {}
            Op::ServerReads => client
                .to_server
                .pop_front()
                .into_iter()
                .for_each(|request| server.request(request)),
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

    // Rejected resources are sent again with the next change of their type, which reaches every
    // client.
    for resource_type in TYPES {
        let have = &client.have[&resource_type];
        if !have.names.contains("z") && !have.wildcard {
            client.toggle(resource_type, "z");
        }
    }

    settle(&mut server, &mut client);
    server.change(|world| {
        TYPES
            .into_iter()
            .for_each(|resource_type| edit(world, resource_type, "z", Some("last".to_owned())))
    });
    settle(&mut server, &mut client);

    for resource_type in TYPES {
        let have = &client.have[&resource_type];
        let has: BTreeMap<&String, &String> = have
            .resources
            .iter()
            .map(|(name, (body, _))| (name, body))
            .collect();
        let shall = server.world[&resource_type]
            .iter()
            .filter(|(name, _)| have.wildcard || have.names.contains(*name));
        let shall: BTreeMap<&String, &String> = shall.collect();

        if protocol == Protocol::Delta || resource_type.is_wildcard_by_default() {
            assert_eq!(has, shall, "{resource_type:?}");
        } else {
            // The state-of-the-world protocol cannot remove resources of named types.
            let still: BTreeMap<&String, &String> = has
                .into_iter()
                .filter(|(name, _)| shall.contains_key(name))
                .collect();
            assert_eq!(still, shall, "{resource_type:?}");
        }

        assert!(server.rig.session.is_acknowledged(resource_type));
    }
}

proptest! {
    #[test]
    fn a_delta_client_ends_up_in_sync(ops in ops(80)) {
        converse(Protocol::Delta, ops);
    }

    #[test]
    fn a_state_of_the_world_client_ends_up_in_sync(ops in ops(80)) {
        converse(Protocol::StateOfTheWorld, ops);
    }
}
