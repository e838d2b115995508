//! Types with subscriptions by address: their resources also have other names.

use navarch_proto::istio::workload::Workload;
use navarch_proto::raw::RawDeltaDiscoveryResponse;
use navarch_push::resource::Resource;
use prost::Message;
use tokio::time::Instant;

use super::super::*;
use super::rig::*;

const TYPE: ResourceType = ResourceType::Workload;

/// The push thread sends the client's workloads, by UID and the last part of their address; the
/// subscribed address `/10.0.0.9` has no workload.
fn tell(rig: &mut Rig, workloads: &[(&str, u8)], answers: u32) {
    let one = |(uid, last): &(&str, u8)| {
        let addresses = vec![vec![10, 0, 0, *last].into()];
        let workload = Workload {
            uid: (*uid).to_owned(),
            addresses,
            ..Workload::default()
        };
        Arc::new(Resource::new(
            TYPE,
            ResourceName::new(uid),
            workload.encode_to_vec().into(),
        ))
    };

    let unknown = Some(Arc::new([ResourceName::new("/10.0.0.9")].into()));
    let resources = workloads.iter().map(one).collect();
    let collection = Arc::new(Collection {
        resource_type: TYPE,
        resources,
        unknown,
    });

    let update = Update {
        collection,
        revision: 1,
        answers,
        reason: Default::default(),
        since: Instant::now(),
    };

    assert_eq!(
        rig.session.step(Event::Update(TYPE, update), &rig.cache),
        []
    );
}

/// Names with their aliases, and removed names, of the next response; acknowledges it.
#[track_caller]
fn next(rig: &mut Rig) -> (Vec<String>, Vec<String>) {
    let response = rig.session.next(rig.now, &rig.cache).expect("a response");
    let decoded = RawDeltaDiscoveryResponse::decode(response.payload.plain().clone()).unwrap();
    let names = decoded
        .resources
        .into_iter()
        .map(|one| format!("{} {}", one.name, one.aliases.join(",")));
    rig.request(delta(TYPE, &[], &response.nonce, None));
    (
        names.collect(),
        response.removed.iter().map(ToString::to_string).collect(),
    )
}

fn subscribe(rig: &mut Rig, names: &[&str]) {
    rig.request(delta(TYPE, names, "", None));
}

#[test]
fn a_resource_requested_by_address_is_sent_under_its_own_name() {
    let mut rig = Rig::new(Protocol::Delta);
    subscribe(&mut rig, &["/10.0.0.1", "/10.0.0.9"]);
    tell(&mut rig, &[("a", 1), ("b", 2)], 1);
    assert_eq!(
        next(&mut rig),
        (
            strings(&["a /10.0.0.1", "b /10.0.0.2"]),
            strings(&["/10.0.0.9"])
        )
    );

    // A removed workload is sent by the name that the client subscribed to.
    tell(&mut rig, &[("b", 2)], 0);
    assert_eq!(next(&mut rig), (vec![], strings(&["a"])));

    // A repeated subscription gets a response.
    subscribe(&mut rig, &["/10.0.0.2"]);
    tell(&mut rig, &[("b", 2)], 1);
    assert_eq!(next(&mut rig), (strings(&["b /10.0.0.2"]), vec![]));
    rig.is_silent();
}

#[test]
fn a_wildcard_subscription_gets_no_aliases() {
    let mut rig = Rig::new(Protocol::Delta);
    subscribe(&mut rig, &[]);
    tell(&mut rig, &[("a", 1)], 1);
    assert_eq!(next(&mut rig), (strings(&["a "]), vec![]));
}

#[test]
fn an_empty_subscription_gets_workloads_of_the_node() {
    let mut rig = Rig::new(Protocol::Delta);
    let effects = rig.request(delta(TYPE, &["*", "-*"], "", None));
    assert_eq!(effects, [Effect::Subscribe(TYPE, Interest::default())]);
    tell(&mut rig, &[("a", 1)], 1);
    assert_eq!(next(&mut rig), (strings(&["a /10.0.0.1"]), vec![]));
}

#[test]
fn addresses_of_a_reconnecting_client_are_only_removed_if_gone() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(come_back(
        TYPE,
        &["/10.0.0.1"],
        &["/10.0.0.1", "/10.0.0.9", "a", "gone"],
    ));
    tell(&mut rig, &[("a", 1)], 1);
    let (names, gone) = next(&mut rig);
    assert_eq!(
        (names, gone),
        (strings(&["a /10.0.0.1"]), strings(&["/10.0.0.9", "gone"]))
    );
}
