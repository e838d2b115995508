//! Questions about other clients reach the other translator: a question that does not would be
//! answered as if there were nothing, without an error.

use navarch_api::names::{Hostname, Namespace, ServiceAccount};

use super::*;

/// Answers every question about a proxy.
struct Answers;

impl Translator for Answers {
    fn names(&self, _: ResourceType, _: &View<'_>) -> Vec<ResourceName> {
        Vec::new()
    }

    fn resource(&self, _: ResourceType, _: &ResourceName, _: &View<'_>) -> Option<Bytes> {
        None
    }

    fn learned(
        &self,
        clusters: &BTreeSet<ResourceName>,
        _: &View<'_>,
    ) -> Option<(LearnedWorkload, LearnedHosts)> {
        let workload = LearnedWorkload {
            namespace: Namespace::new("shop"),
            account: ServiceAccount::new("web"),
            name: Arc::from("web"),
        };
        let hosts = clusters.iter().map(|name| Hostname::new(name.as_str()));
        Some((workload, hosts.collect()))
    }

    fn scoped_clusters(
        &self,
        requested: &BTreeSet<ResourceName>,
        _: &View<'_>,
    ) -> Option<ScopedClusters> {
        Some(ScopedClusters {
            requested: requested.len(),
            ..ScopedClusters::default()
        })
    }

    fn has_large_routes(&self, _: &View<'_>) -> bool {
        true
    }
}

#[test]
fn questions_about_envoys_are_those_of_the_other_translator() {
    let state = MeshState::new(Settings::default());
    let mut engine = Engine::new(state.context(), Arc::new(AmbientTranslator(Answers)));
    let node = "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local";
    let proxy = Proxy::parse(node, json!({}), Locality::default()).unwrap();
    let id = engine.connect(Arc::new(proxy), Arc::new(NoSink));

    let clusters = BTreeSet::from([ResourceName::new("a.example")]);
    let requested = Arc::new(clusters.clone());
    let counted = engine.scoped_clusters(id, requested).unwrap();
    assert_eq!(counted.requested, 1);
    let (_, hosts) = engine.learned_by(id, clusters).unwrap();
    assert_eq!(hosts, LearnedHosts::from([Hostname::new("a.example")]));
    assert!(engine.has_large_routes(id));
}
