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

        match server.rig.session.wake_at() {
            Some(at) if at < NO_RETRY => server.rig.now = at,
            Some(_) | None => return,
        }
    }

    panic!("the conversation does not end");
}

/// One event.
fn apply(op: Op, server: &mut Server, client: &mut Client) {
    match op {
        Op::Change(edits) => server.change(|world| {
            for (resource_type, name, value) in edits {
                if value.is_none() {
                    client.excuse(TYPES[resource_type], &[NAMES[name]]);
                }
                edit(
                    world,
                    TYPES[resource_type],
                    NAMES[name],
                    value.map(|value| value.to_string()),
                );
            }
        }),

        Op::Toggle(resource_type, _)
            if client.protocol == Protocol::StateOfTheWorld
                && TYPES[resource_type].is_wildcard_by_default() => {}
        Op::Toggle(resource_type, name) => client.toggle(TYPES[resource_type], NAMES[name]),
        Op::ToggleWildcard(resource_type) if client.protocol == Protocol::Delta => {
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
        apply(op, &mut server, &mut client);
    }

    settle(&mut server, &mut client);

    // Rejected resources are sent again once they have changed.
    for resource_type in TYPES {
        let have = &client.have[&resource_type];
        if !have.names.contains("z") && !have.wildcard {
            client.toggle(resource_type, "z");
        }
    }

    settle(&mut server, &mut client);
    server.change(|world| {
        for resource_type in TYPES {
            let all = world.entry(resource_type).or_default();
            let names: Vec<String> = all.keys().cloned().chain(["z".to_owned()]).collect();
            for name in names {
                edit(world, resource_type, &name, Some("last".to_owned()));
            }
        }
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

/// A client that rejects some clusters and listeners, and names them as Envoy does, has all others
/// without a further change, and is sent none of the rejected ones again.
fn converse_with_bad(ops: Vec<Op>) {
    let mut server = Server::new(Protocol::Delta);
    let mut client = Client::new(Protocol::Delta);
    for resource_type in [CDS, LDS] {
        client.toggle_wildcard(resource_type);
    }
    client.rejections = Some(Rejections::default());

    for op in ops {
        // A rejection that comes too late counts for nothing.
        if matches!(op, Op::Wait(_)) {
            continue;
        }

        // Rejections at random are those of the other conversations.
        let reads = matches!(op, Op::ClientReads(_));
        let op = if reads { Op::ClientReads(None) } else { op };
        apply(op, &mut server, &mut client);
    }

    settle(&mut server, &mut client);
    for resource_type in [CDS, LDS] {
        has_all_good(resource_type, &server, &client);
    }
}

/// Asserts that a client has all but the bad resources, and counts as having rejected those.
fn has_all_good(resource_type: ResourceType, server: &Server, client: &Client) {
    let have = &client.have[&resource_type];
    let none = BTreeMap::new();
    let all = server.world.get(&resource_type).unwrap_or(&none);
    let wanted = all
        .iter()
        .filter(|(name, _)| have.wildcard || have.names.contains(*name));
    let (bad, good): (Vec<_>, Vec<_>) = wanted.partition(|(_, body)| is_bad(body));

    for (name, body) in good {
        let has = have.resources.get(name).map(|(body, _)| body);
        assert_eq!(has, Some(body), "{resource_type:?} {name}");
    }
    let gone = have.resources.keys().find(|name| !all.contains_key(*name));
    assert_eq!(gone, None, "{resource_type:?}");
    assert!(server.rig.session.is_acknowledged(resource_type));
    if bad.is_empty() {
        return;
    }

    let watch = &server.rig.session.watches[&resource_type];
    let newest = watch.latest.as_ref();
    let is_newest = |of: Option<&Arc<Collection>>| {
        of.zip(newest)
            .is_some_and(|(one, newest)| Arc::ptr_eq(one, newest))
    };
    assert!(watch.history.rejected.is_some(), "{bad:?}");
    assert!(is_newest(watch.history.rejected_collection.as_ref()));
    assert!(!is_newest(watch.taken().map(|(taken, _)| taken)));
}

proptest! {
    #[test]
    fn a_delta_client_has_all_that_it_does_not_reject(ops in ops(80)) {
        converse_with_bad(ops);
    }

    #[test]
    fn a_delta_client_ends_up_in_sync(ops in ops(80)) {
        converse(Protocol::Delta, ops);
    }

    #[test]
    fn a_state_of_the_world_client_ends_up_in_sync(ops in ops(80)) {
        converse(Protocol::StateOfTheWorld, ops);
    }
}
