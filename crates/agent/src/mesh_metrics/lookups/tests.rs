//! Subscriptions to addresses, and the use of responses.

use navarch_proto::raw::{RawAny, RawResource};

use super::*;

const BUYER: &str = "spiffe://td/ns/shop/sa/buyer";
const UID: &str = "Kubernetes//Pod/shop/client-1";
const DESCRIPTION: &str = "client;shop;client;v1;east;spiffe:///ns/shop/sa/buyer;client;v1";

fn at(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// A workload of the service account `buyer` with these addresses.
fn workload(uid: &str, name: &str, addresses: &[IpAddr]) -> RawResource {
    let bytes = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec().into(),
        IpAddr::V6(address) => address.octets().to_vec().into(),
    };
    let workload = Workload {
        workload_name: name.to_owned(),
        namespace: "shop".to_owned(),
        canonical_name: name.to_owned(),
        canonical_revision: "v1".to_owned(),
        cluster_id: "east".to_owned(),
        service_account: "buyer".to_owned(),
        addresses: addresses.iter().map(bytes).collect(),
        ..Workload::default()
    };

    let any = RawAny {
        type_url: String::new(),
        value: workload.encode_to_vec().into(),
    };
    RawResource {
        name: uid.to_owned(),
        resource: Some(any),
        ..RawResource::default()
    }
}

fn answer(resources: Vec<RawResource>, removed: &[&str]) -> RawDeltaDiscoveryResponse {
    let removed_resources = removed.iter().map(|name| (*name).to_owned()).collect();
    RawDeltaDiscoveryResponse {
        resources,
        removed_resources,
        ..RawDeltaDiscoveryResponse::default()
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Lookups with an open stream.
fn begun(now: Instant) -> (Lookups, StreamId) {
    let mut lookups = Lookups::in_network("net");
    let stream = lookups.begin(now);
    (lookups, stream)
}

#[test]
fn a_peer_is_looked_up_once_and_then_cached() {
    let now = Instant::now();
    let (mut lookups, stream) = begun(now);
    assert_eq!(
        lookups.find(at(1), BUYER, now),
        PeerAnswer::Pending(now + WAIT)
    );
    assert_eq!(
        lookups.find(at(2), BUYER, now),
        PeerAnswer::Pending(now + WAIT)
    );
    assert_eq!(
        lookups.find(at(1), BUYER, now),
        PeerAnswer::Pending(now + WAIT)
    );
    let requested = NameChanges {
        subscribe: names(&["net/10.0.0.1", "net/10.0.0.2"]),
        unsubscribe: Vec::new(),
    };

    assert_eq!(
        (lookups.next(stream), lookups.next(stream)),
        (Some(requested), None)
    );
    let pod = workload(UID, "client", &[at(1), at(7)]);
    lookups.take(answer(vec![pod], &["net/10.0.0.2"])).unwrap();
    assert_eq!(
        lookups.find(at(1), BUYER, now),
        PeerAnswer::Known(DESCRIPTION.into())
    );

    assert_eq!(
        lookups.find(at(1), "spiffe://other/ns/shop/sa/buyer", now),
        PeerAnswer::Known(DESCRIPTION.into())
    );

    // Another identity at an address is another peer, and an address without a workload is not
    // requested again.
    assert_eq!(
        lookups.find(at(1), "spiffe://td/ns/shop/sa/seller", now),
        PeerAnswer::Unknown
    );
    assert_eq!(lookups.find(at(2), BUYER, now), PeerAnswer::Unknown);
    assert!(!lookups.has_changes() && lookups.is_settled(at(2)));

    assert_eq!(lookups.by_uid.len(), 1);
    assert_eq!(
        lookups.by_uid[UID],
        [at(1)],
        "its other address was not requested"
    );

    // An address may get a workload later, and workloads are removed.
    lookups
        .take(answer(vec![workload("b", "b", &[at(2)])], &[UID]))
        .unwrap();
    assert_eq!(lookups.find(at(1), BUYER, now), PeerAnswer::Unknown);
    assert!(
        matches!(lookups.find(at(2), BUYER, now), PeerAnswer::Known(description) if description.starts_with("b;shop;b;"))
    );

    assert!(!lookups.by_uid.contains_key(UID));
}

#[test]
fn workloads_with_the_same_address_and_identity_keep_only_common_metadata() {
    let now = Instant::now();
    let (mut lookups, _) = begun(now);
    lookups.find(at(1), BUYER, now);
    lookups
        .take(answer(
            vec![
                workload("a", "client", &[at(1)]),
                workload("b", "client", &[at(1)]),
            ],
            &[],
        ))
        .unwrap();

    assert_eq!(
        lookups.find(at(1), BUYER, now),
        PeerAnswer::Known(DESCRIPTION.into())
    );
    lookups
        .take(answer(vec![workload("b", "other", &[at(1)])], &[]))
        .unwrap();
    assert_eq!(lookups.find(at(1), BUYER, now), PeerAnswer::Unknown);
}

#[test]
fn peer_lookups_time_out_and_fail_at_once_without_a_stream() {
    let now = Instant::now();
    let (mut lookups, stream) = begun(now);
    lookups.find(at(1), BUYER, now);
    assert_eq!(lookups.find(at(1), BUYER, now + WAIT), PeerAnswer::Unknown);
    lookups.find(at(2), BUYER, now);
    lookups.end(stream);
    assert_eq!(
        [at(2), at(3)].map(|address| lookups.find(address, BUYER, now)),
        [PeerAnswer::Unknown, PeerAnswer::Unknown]
    );

    // Without a stream there was no request; the next stream subscribes to all addresses.
    let next = lookups.begin(now);
    lookups.end(stream);
    assert_eq!(lookups.next(stream), None);
    assert_eq!(
        lookups.next(next).unwrap().subscribe,
        ["net/10.0.0.1", "net/10.0.0.2"]
    );

    // A control plane that does not support the type gets no further requests.
    lookups.rejected(now);
    let third = lookups.begin(now);
    assert_eq!(lookups.find(at(4), BUYER, now), PeerAnswer::Unknown);
    let later = now + REJECTION_PAUSE;
    assert_eq!(
        lookups.find(at(4), BUYER, later),
        PeerAnswer::Pending(later + WAIT)
    );

    assert_eq!(lookups.next(third).unwrap().subscribe, ["net/10.0.0.4"]);
}

#[test]
fn peers_of_an_earlier_stream_are_kept_until_the_next_stream_responds() {
    let now = Instant::now();
    let (mut lookups, stream) = begun(now);
    for last in [1, 2] {
        lookups.find(at(last), BUYER, now);
    }

    lookups
        .take(answer(
            vec![
                workload(UID, "client", &[at(1)]),
                workload("old", "old", &[at(2)]),
            ],
            &[],
        ))
        .unwrap();

    lookups.end(stream);
    lookups.begin(now);
    assert_eq!(
        lookups.find(at(1), BUYER, now),
        PeerAnswer::Known(DESCRIPTION.into())
    );

    // Meanwhile one workload was removed, and another has taken over the address.
    lookups
        .take(answer(
            vec![workload("new", "client", &[at(2)])],
            &["net/10.0.0.1"],
        ))
        .unwrap();

    assert_eq!(lookups.find(at(1), BUYER, now), PeerAnswer::Unknown);
    assert_eq!(
        lookups.find(at(2), BUYER, now),
        PeerAnswer::Known(DESCRIPTION.into())
    );
    assert_eq!(lookups.by_uid.len(), 1);
}

#[test]
fn addresses_and_names_in_requests_are_bounded() {
    let now = Instant::now();
    let (mut lookups, stream) = begun(now);
    let address = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
    for number in 0..MAX_PEERS {
        lookups.find(address(number), BUYER, now);
    }

    let requested = std::iter::from_fn(|| lookups.next(stream))
        .map(|changes| changes.subscribe.len())
        .collect::<Vec<_>>();
    assert_eq!(requested, [MAX_NAMES; MAX_PEERS / MAX_NAMES]);
    lookups
        .take(answer(
            vec![workload(UID, "client", &[address(1), address(4000)])],
            &[],
        ))
        .unwrap();

    let later = now + Duration::from_secs(1);
    lookups.find(address(0), BUYER, later);
    lookups.find(address(MAX_PEERS), BUYER, later);
    assert_eq!(lookups.peers.len(), MAX_PEERS - EVICTION_BATCH + 1);
    let changes = lookups.next(stream).unwrap();
    assert_eq!(
        (changes.subscribe, changes.unsubscribe.len()),
        (names(&["net/0.0.16.0"]), EVICTION_BATCH)
    );

    assert!(
        lookups.peers.contains_key(&address(0)),
        "the peer is cached"
    );
    assert_eq!(lookups.by_uid[UID], [address(4000)]);
    let broken = RawResource {
        resource: Some(RawAny {
            value: Bytes::from_static(&[0xff]),
            ..RawAny::default()
        }),
        ..RawResource::default()
    };

    assert!(lookups.take(answer(vec![broken], &[])).is_err());
}
