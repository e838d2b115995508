//! Bytes on the wire for a sidecar of a mesh with 1,000 services: what an edit of a mesh-wide setting
//! sends, and what the two forms of routes send. It measures sizes, not times: `cargo bench --bench
//! wire` prints two tables, which are the same in each run.

#![expect(
    clippy::print_stdout,
    reason = "the tables are what the program is for"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use clients::Plane;
use navarch::push::resource::{Collection, Resource, ResourceType};
use navarch_proto::raw::{RawAny, RawDeltaDiscoveryResponse, RawResource};
use navarch_tests::{clients, world};
use prost::Message as _;
use world::{Size, mesh, virtual_service};

const SERVICES: usize = 1_000;
/// The level that the server compresses with.
const ZSTD_LEVEL: i32 = 1;

/// The types that a sidecar subscribes to.
const TYPES: [ResourceType; 5] = [
    ResourceType::Cluster,
    ResourceType::Endpoint,
    ResourceType::Listener,
    ResourceType::Route,
    ResourceType::NameTable,
];

/// The mesh config before each edit.
const BASE: &str = "enableTracing: true\n";

/// An edit of mesh config: its name, and the YAML that it adds.
const EDITS: [(&str, &str); 7] = [
    (
        "minimum TLS version",
        "meshMTLS: {minProtocolVersion: TLSV1_3}",
    ),
    ("access logs on", "accessLogFile: /dev/stdout"),
    (
        "access log format",
        "accessLogFile: /dev/stdout\naccessLogFormat: '%START_TIME% %RESPONSE_CODE%'",
    ),
    (
        "tracing sample rate",
        "defaultConfig: {tracing: {sampling: 50}}",
    ),
    (
        "outbound policy",
        "outboundTrafficPolicy: {mode: REGISTRY_ONLY}",
    ),
    (
        "minimum TLS version outside of the mesh",
        "tlsDefaults: {minProtocolVersion: TLSV1_3}",
    ),
    ("connect timeout", "connectTimeout: 5s"),
];

/// The size of a response.
struct Bytes {
    resources: usize,
    plain: usize,
    zstd: usize,
}

impl Bytes {
    /// Of a response with these resources, in the delta protocol.
    fn of<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>) -> Self {
        let resources: Vec<RawResource> = resources.map(|resource| raw(resource)).collect();
        let count = resources.len();
        let response = RawDeltaDiscoveryResponse {
            resources,
            ..RawDeltaDiscoveryResponse::default()
        };
        let plain = response.encode_to_vec();
        let zstd = zstd::bulk::compress(&plain, ZSTD_LEVEL).expect("memory suffices");
        Self {
            resources: count,
            plain: plain.len(),
            zstd: zstd.len(),
        }
    }
}

/// A resource as the server sends it.
fn raw(resource: &Resource) -> RawResource {
    RawResource {
        version: resource.version.to_string(),
        name: resource.name.to_string(),
        resource: Some(RawAny {
            type_url: resource.resource_type.type_url().to_owned(),
            value: resource.body.clone(),
        }),
        aliases: Vec::new(),
    }
}

/// The resources that are new, or differ from those before.
fn changed<'a>(
    before: &Collection,
    now: &'a Collection,
) -> impl Iterator<Item = &'a Arc<Resource>> {
    let before: BTreeMap<_, _> = before
        .resources
        .iter()
        .map(|resource| (resource.name.clone(), resource.version))
        .collect();
    let differs = move |resource: &&Arc<Resource>| {
        before.get(&resource.name).copied() != Some(resource.version)
    };
    now.resources.iter().filter(differs)
}

/// A sidecar of the mesh, and one that gets its virtual hosts one by one.
fn plane() -> Plane {
    let mut plane = Plane::new(mesh(Size {
        services: SERVICES,
        endpoints: 3,
        rules: 200,
    }));
    plane.connect(1, SERVICES);
    plane.connect_fine_grained(1);
    plane
}

/// What each edit of a mesh-wide setting sends.
fn settings() {
    let mut plane = plane();
    plane.mesh_config(BASE);
    println!("| edit | type | resources | bytes | zstd |");
    println!("| --- | --- | --- | --- | --- |");
    for resource_type in TYPES {
        let all = Bytes::of(plane.published(0, resource_type).resources.iter());
        print_row("first sync", resource_type, &all);
    }

    for (name, yaml) in EDITS {
        let before = TYPES.map(|resource_type| plane.published(0, resource_type));
        plane.mesh_config(&format!("{BASE}{yaml}"));
        for (before, resource_type) in before.iter().zip(TYPES) {
            let now = plane.published(0, resource_type);
            let sent = Bytes::of(changed(before, &now));
            if sent.resources > 0 {
                print_row(name, resource_type, &sent);
            }
        }
        plane.mesh_config(BASE);
    }
}

fn print_row(edit: &str, resource_type: ResourceType, sent: &Bytes) {
    let Bytes {
        resources,
        plain,
        zstd,
    } = sent;
    let resource_type = resource_type.short_name();
    println!("| {edit} | {resource_type} | {resources} | {plain} | {zstd} |");
}

/// What each form of routes sends: at the first sync, and after the edit of one VirtualService.
fn forms() {
    let mut plane = plane();
    let published = |plane: &Plane| {
        [
            plane.published(0, ResourceType::Route),
            plane.published(1, ResourceType::VirtualHost),
        ]
    };
    let before = published(&plane);
    plane.apply(vec![virtual_service(7, 20)]);
    let now = published(&plane);

    println!("\n| form | sent | resources | bytes | zstd |");
    println!("| --- | --- | --- | --- | --- |");
    for ((before, now), form) in before.iter().zip(&now).zip(["whole", "one by one"]) {
        for (what, sent) in [
            ("first sync", Bytes::of(now.resources.iter())),
            ("an edit", Bytes::of(changed(before, now))),
        ] {
            let Bytes {
                resources,
                plain,
                zstd,
            } = sent;
            println!("| {form} | {what} | {resources} | {plain} | {zstd} |");
        }

        // Each entry of `initial_resource_versions`: two strings in a message.
        let names = now
            .resources
            .iter()
            .map(|resource| resource.name.as_str().len());
        let versions: usize = names.map(|name| 2 + 2 + name + 2 + 32).sum();
        println!("| {form} | versions of a proxy that comes back | - | {versions} | - |");
    }
}

fn main() {
    settings();
    forms();
}
