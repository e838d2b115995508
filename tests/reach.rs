//! The cost of a change, as the number of computed results and of visited ones: it must not grow
//! with unchanged parts of the mesh.
//!
//! One cost does grow: a new Service changes the index of all services, on which every result that
//! selects services by visibility depends; those are computed again, and if they are equal, results
//! that depend on them are not.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, print, spawn and read its switches from the environment"
)]

use clients::Plane;
use navarch::push::engine::PushStats;
use navarch::push::mesh_state::Change;
use navarch::push::resource::ResourceType;
use navarch_proto::raw::{RawAny, RawDeltaDiscoveryResponse, RawResource};
use navarch_tests::{clients, world};
use prost::Message as _;
use world::{Size, destination_rule, mesh, pod, service, slice, virtual_service};

/// A mesh of this number of services with two endpoints each, ten rules of each kind, and two
/// identical sidecars.
fn plane(services: usize) -> Plane {
    let mut plane = Plane::new(mesh(Size {
        services,
        endpoints: 2,
        rules: 10,
    }));
    plane.connect(2, services);
    plane.connect_fine_grained(2);
    plane
}

/// Applies a change to a small mesh and to a large one.
fn in_both(change: impl Fn() -> Vec<Change>) -> [PushStats; 2] {
    [100, 1_000].map(|services| {
        let mut plane = plane(services);
        plane.apply(change())
    })
}

/// The permitted difference of computed results between two meshes: lists are cut into chunks by a
/// hash with a random key, and a change next to a cut affects one chunk more or less.
const CUTS: u64 = 2;

/// The cost of a change is the same in both, except for visiting the chunks of ten times as many
/// resources.
fn assert_flat([small, large]: [PushStats; 2], computed: u64) {
    assert!(
        large.computed.abs_diff(small.computed) <= CUTS,
        "{small:?}, {large:?}"
    );
    assert!(small.computed <= computed, "{small:?}");
    assert!(large.visited <= small.visited + 300, "{small:?}, {large:?}");
}

#[test]
fn an_endpoint_costs_the_same_in_a_mesh_of_any_size() {
    let both = in_both(|| vec![pod(3, 2), slice(3, 3)]);
    println!("endpoint: {both:?}");
    assert_flat(both, 12);
}

#[test]
fn a_virtual_service_costs_the_same_in_a_mesh_of_any_size() {
    let both = in_both(|| vec![virtual_service(3, 20)]);
    println!("VirtualService: {both:?}");
    assert_flat(both, 60);
}

#[test]
fn a_destination_rule_costs_the_same_in_a_mesh_of_any_size() {
    let both = in_both(|| vec![destination_rule(3, 200)]);
    println!("DestinationRule: {both:?}");
    assert_flat(both, 60);
}

#[test]
fn a_new_service_computes_few_results_per_existing_service() {
    let [small, large] = [100, 1_000].map(|services| {
        let mut plane = plane(services);
        plane.apply(vec![service(services)])
    });
    println!("Service: {small:?}, {large:?}");
    assert!(large.computed < 1_000 * 40, "{large:?}");
}

#[test]
fn a_changed_endpoint_of_a_small_service_fits_one_tcp_segment() {
    // Ethernet's 1,500 bytes without the headers of IPv6 and TCP, TLS's record, HTTP/2's frame and
    // gRPC's prefix.
    let room = 1_500 - 40 - 20 - 12 - 22 - 9 - 5;
    let mut plane = Plane::new(mesh(Size {
        services: 4,
        endpoints: 3,
        rules: 0,
    }));
    plane.connect(1, 4);

    plane.apply(vec![pod(3, 3), slice(3, 4)]);
    let endpoints = plane.published(0, ResourceType::Endpoint);
    let changed = endpoints
        .resources
        .iter()
        .find(|resource| resource.name.as_str().contains("svc3."))
        .unwrap();

    // As long as those of a server that has run for long: `navarch_xds` tests that it sends no more.
    let response = RawDeltaDiscoveryResponse {
        system_version_info: "2026-11-30T12:00:00Z/123456".to_owned(),
        nonce: "100000.100000".to_owned(),
        type_url: changed.resource_type.type_url().to_owned(),
        resources: vec![RawResource {
            version: changed.version.to_string(),
            name: changed.name.to_string(),
            resource: Some(RawAny {
                type_url: changed.resource_type.type_url().to_owned(),
                value: changed.body.clone(),
            }),
            aliases: Vec::new(),
        }],
        ..RawDeltaDiscoveryResponse::default()
    };
    let whole = response.encoded_len();
    println!(
        "a changed endpoint of four: {whole} bytes, {} of them its endpoints",
        changed.body.len()
    );
    assert!(whole <= room, "{whole} bytes, more than {room}");
}
