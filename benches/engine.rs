//! The cost of the engine, from a change of the mesh to the last pushed collection: 1,000 services
//! of 10 endpoints, 200 VirtualServices and DestinationRules, up to 1,000 identical sidecars.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "the macros of criterion generate functions without docs"
)]
#![expect(
    clippy::print_stdout,
    reason = "the report includes the cost of a change"
)]

use std::time::Duration;

use clients::Plane;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use navarch::push::mesh_state::Change;
use navarch_tests::{clients, world};
use world::{
    Size, destination_rule, mesh, pod, private_virtual_service, service, slice, virtual_service,
};

/// The server's allocator, which is part of the cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SERVICES: usize = 1_000;
const PROXIES: usize = 1_000;
const SIZE: Size = Size {
    services: SERVICES,
    endpoints: 10,
    rules: 200,
};

/// From an empty engine to the first snapshot.
fn cold_start(c: &mut Criterion) {
    c.bench_function("cold start", |b| {
        b.iter_batched(|| mesh(SIZE), Plane::new, BatchSize::PerIteration)
    });
}

/// The first sidecar, and the thousandth of identical ones.
fn connect(c: &mut Criterion) {
    let plane = Plane::new(mesh(SIZE));
    c.bench_function("first sidecar", |b| {
        b.iter_batched_ref(
            || plane.fresh(),
            |plane| plane.connect(1, SERVICES),
            BatchSize::PerIteration,
        );
    });
    c.bench_function("1,000 sidecars", |b| {
        b.iter_batched_ref(
            || plane.fresh(),
            |plane| plane.connect(PROXIES, SERVICES),
            BatchSize::PerIteration,
        );
    });
}

/// Single changes while all sidecars are connected.
fn changes(c: &mut Criterion) {
    let mut plane = Plane::new(mesh(SIZE));
    plane.connect(PROXIES, SERVICES);
    let mut change = |name: &str, of: &dyn Fn(usize) -> Vec<Change>| {
        let mut turn = 0;
        let before = plane.sent();
        let stats = plane.apply(of(1));
        println!("{name}: {stats:?}, handed over {}", plane.sent() - before);
        c.bench_function(name, |b| {
            let next = || {
                turn += 1;
                of(turn % 2)
            };
            b.iter_batched(
                next,
                |changes| plane.apply(changes),
                BatchSize::PerIteration,
            );
        });
    };

    change("endpoint", &|turn| vec![pod(7, 9), slice(7, 9 + turn)]);
    change("VirtualService", &|turn| {
        vec![virtual_service(7, 20 + turn)]
    });
    change("DestinationRule", &|turn| {
        vec![destination_rule(7, 200 + turn)]
    });
    change("VirtualService without proxies", &|turn| {
        vec![private_virtual_service(turn)]
    });

    change("rewrite", &|_| vec![service(7)]);
    change("service", &|turn| match turn {
        0 => vec![service(SERVICES)],
        _ => {
            let added = service(SERVICES);
            let Change::Put(object) = &added else {
                return vec![added];
            };
            vec![Change::Removed(object.object_ref())]
        }
    });
}

/// A VirtualService changes while all sidecars use on-demand virtual hosts.
fn fine_grained(c: &mut Criterion) {
    let mut plane = Plane::new(mesh(SIZE));
    plane.connect_fine_grained(PROXIES);
    let mut turn = 0;
    c.bench_function("VirtualService, one host", |b| {
        let next = || {
            turn += 1;
            vec![virtual_service(7, 20 + turn % 2)]
        };
        b.iter_batched(
            next,
            |changes| plane.apply(changes),
            BatchSize::PerIteration,
        );
    });
}

criterion_group! {
    name = engine;
    config = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(3))
        .warm_up_time(Duration::from_secs(1));
    targets = cold_start, connect, changes, fine_grained
}
criterion_main!(engine);
