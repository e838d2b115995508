//! Why a proxy has its clusters.

use navarch_push::learned::ScopedClusters;
use navarch_push::resource::ResourceType;

use super::{LEDGER, MESH, REVIEWS, REVIEWS_V1, SECRET, envoy_filter};
use crate::test_mesh::TestMesh;

#[test]
fn the_clusters_of_a_proxy_are_counted_by_reason() {
    let mut mesh = TestMesh::new(MESH);
    let proxy = mesh.learned_sidecar("shop", "web");
    let fixed = mesh.all_names(proxy, ResourceType::Cluster).len();
    let first = ScopedClusters {
        all: fixed + 3,
        fixed,
        ..ScopedClusters::default()
    };
    assert_eq!(mesh.scoped_clusters(proxy, &[]), Some(first));

    // What it cannot see, and what it has anyway, it has not by its request.
    let requested = [LEDGER, SECRET, "PassthroughCluster"];
    let with_ledger = ScopedClusters {
        requested: 1,
        ..first
    };
    assert_eq!(mesh.scoped_clusters(proxy, &requested), Some(with_ledger));

    assert!(mesh.learn(proxy, &[REVIEWS]));
    let with_reviews = ScopedClusters { used: 2, ..first };
    let requested = [REVIEWS, REVIEWS_V1];
    assert_eq!(mesh.scoped_clusters(proxy, &requested), Some(with_reviews));
}

#[test]
fn what_extensions_name_is_fixed_though_it_was_used() {
    let mut mesh = TestMesh::new(MESH);
    let proxy = mesh.learned_sidecar("shop", "web");
    let fixed = mesh.all_names(proxy, ResourceType::Cluster).len();
    assert!(mesh.learn(proxy, &[LEDGER]));
    mesh.apply(&envoy_filter("SIDECAR_INBOUND", "INSERT_BEFORE"));
    let counted = mesh.scoped_clusters(proxy, &[]).unwrap();
    assert_eq!((counted.fixed, counted.used), (fixed + 1, 0));
}

#[test]
fn a_proxy_that_is_served_whole_has_no_numbers() {
    let mut mesh = TestMesh::new(MESH);
    let whole = mesh.sidecar("shop", "web");
    assert_eq!(mesh.scoped_clusters(whole, &[]), None);

    let proxy = mesh.learned_sidecar("shop", "web");
    mesh.apply(&envoy_filter("SIDECAR_OUTBOUND", "INSERT_BEFORE"));
    assert_eq!(mesh.scoped_clusters(proxy, &[]), None);
}
