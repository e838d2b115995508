//! `/debug/mcsz`: the services that each cluster exports and imports with Kubernetes' Multi-Cluster
//! Services API.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::cluster_settings::McsMode;
use navarch_api::kubernetes::Service;
use navarch_api::mcs::{CLUSTER_SET_DOMAIN, ServiceExport, ServiceImport};
use navarch_api::names::{ClusterId, Hostname};
use navarch_api::object::NamespacedName;
use navarch_push::context::PushContext;
use navarch_registry::model::ServiceKey;
use navarch_store::{Objects, Stored};

/// A service of one cluster.
#[derive(Debug, Default)]
struct Shared {
    /// The discoverability of its endpoints, by host; `None` if it is not exported.
    exported: Option<Map<String, Value>>,
    /// Its first address in the cluster set, empty if it has no host there; `None` if it is not
    /// imported.
    imported: Option<String>,
}

/// Services by cluster, namespace and name; `null` if there are none, as in Go.
pub(super) async fn mcsz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let rows = rows(&state.push.context());
    reply::json(
        &parameters,
        &if rows.is_empty() {
            Value::Null
        } else {
            Value::Array(rows)
        },
    )
}

/// The rows of all clusters.
fn rows(context: &PushContext) -> Vec<Value> {
    let own = (&context.mesh.settings.cluster_id, &context.objects);
    let clusters: BTreeMap<&ClusterId, &Objects> =
        std::iter::once(own).chain(&context.remotes).collect();
    let of_cluster = |(cluster, objects): (&ClusterId, &Objects)| -> Vec<Value> {
        shared(context, objects)
            .iter()
            .map(|(name, shared)| row(cluster, name, shared))
            .collect()
    };
    clusters.into_iter().flat_map(of_cluster).collect()
}

/// The services that a cluster exports and imports, as far as it is enabled.
fn shared(context: &PushContext, objects: &Objects) -> BTreeMap<NamespacedName, Shared> {
    let settings = &context.mesh.settings;
    let mode = settings.clusters.mcs;
    let mut all: BTreeMap<NamespacedName, Shared> = BTreeMap::new();

    if mode >= McsMode::Exports {
        for export in ServiceExport::table(objects).iter() {
            let name = export.meta.key();
            let mut hosts = Map::new();
            if Service::table(objects).get(&name).is_some() {
                let policy = match mode {
                    McsMode::ClusterLocal => "DiscoverableFromSameCluster",
                    McsMode::Off | McsMode::Exports | McsMode::Hosts => "AlwaysDiscoverable",
                };
                hosts.insert(host(&name, &settings.domain_suffix), policy.into());
            }
            if address(context, objects, &name).is_some() {
                hosts.insert(host(&name, CLUSTER_SET_DOMAIN), "AlwaysDiscoverable".into());
            }
            all.entry(name).or_default().exported = Some(hosts);
        }
    }

    if mode >= McsMode::Hosts {
        for import in ServiceImport::table(objects).iter() {
            let name = import.meta.key();
            let address = address(context, objects, &name).unwrap_or_default();
            all.entry(name).or_default().imported = Some(address);
        }
    }

    all
}

/// The first address of a service in the cluster set: it exists only if the mesh has a Service of
/// this name.
fn address(context: &PushContext, objects: &Objects, name: &NamespacedName) -> Option<String> {
    if context.mesh.settings.clusters.mcs < McsMode::Hosts {
        return None;
    }
    let hostname = Hostname::new(host(name, &context.mesh.settings.domain_suffix));
    let real = ServiceKey {
        namespace: name.namespace.clone(),
        hostname,
    };
    let import = ServiceImport::table(objects)
        .get(name)
        .filter(|_| context.directory.services.contains_key(&real))?;
    import.spec.addresses().first().map(ToString::to_string)
}

/// The host of a Service in a domain.
fn host(name: &NamespacedName, domain: &str) -> String {
    format!("{}.{}.svc.{domain}", name.name, name.namespace)
}

/// One service in istiod's format.
fn row(cluster: &ClusterId, name: &NamespacedName, shared: &Shared) -> Value {
    json!({
        "Cluster": cluster,
        "Name": &*name.name,
        "Namespace": name.namespace,
        "Exported": shared.exported.is_some(),
        "Imported": shared.imported.is_some(),
        "ClusterSetVIP": shared.imported.as_deref().unwrap_or_default(),
        "Discoverability": shared.exported,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use navarch_api::object::{Object, ObjectMeta};
    use navarch_push::context::Mesh;
    use navarch_registry::directory::Directory;

    use super::*;

    fn meta(name: &str) -> ObjectMeta {
        ObjectMeta {
            key: NamespacedName::new("shop", name),
            ..ObjectMeta::default()
        }
    }

    fn context(mcs: McsMode) -> PushContext {
        let import = ServiceImport {
            ips: vec!["240.0.0.9".to_owned(), "no address".to_owned()],
            ..Default::default()
        };
        let mut objects = Objects::default();
        objects.put(Arc::new(Object {
            meta: meta("web"),
            spec: ServiceExport {},
        }));

        let mut there = Objects::default();
        there.put(Arc::new(Object {
            meta: meta("web"),
            spec: import.clone(),
        }));
        there.put(Arc::new(Object {
            meta: meta("web"),
            spec: ServiceExport {},
        }));

        there.put(Arc::new(Object {
            meta: meta("gone"),
            spec: import,
        }));
        let mut mesh = Mesh::default();
        mesh.settings.clusters.mcs = mcs;
        mesh.settings.cluster_id = ClusterId::new("west");
        mesh.settings.domain_suffix = "cluster.local".to_owned();

        let key = ServiceKey::new("shop", "web.shop.svc.cluster.local");
        let services = [(key, Arc::from([]))].into_iter().collect();
        let directory = Directory {
            services,
            ..Directory::default()
        };
        let remotes = [(ClusterId::new("east"), there)].into_iter().collect();
        PushContext {
            mesh: Arc::new(mesh),
            objects,
            directory,
            remotes,
            ..PushContext::default()
        }
    }

    fn one(cluster: &str, name: &str, exported: &Value, imported: Option<&str>) -> Value {
        json!({
            "Cluster": cluster, "Name": name, "Namespace": "shop", "Exported": !exported.is_null(),
            "Imported": imported.is_some(), "ClusterSetVIP": imported.unwrap_or_default(), "Discoverability": exported,
        })
    }

    #[test]
    fn each_cluster_has_entries_for_its_exports_and_imports() {
        let seen = json!({ "web.shop.svc.clusterset.local": "AlwaysDiscoverable" });
        let expected = vec![
            one("east", "gone", &Value::Null, Some("")),
            one("east", "web", &seen, Some("240.0.0.9")),
            one("west", "web", &json!({}), None),
        ];
        assert_eq!(rows(&context(McsMode::Hosts)), expected);
    }

    #[test]
    fn disabled_features_have_no_rows() {
        assert_eq!(rows(&context(McsMode::Off)), Vec::<Value>::new());
        let exports = vec![
            one("east", "web", &json!({}), None),
            one("west", "web", &json!({}), None),
        ];
        assert_eq!(rows(&context(McsMode::Exports)), exports, "imports are off");
    }
}
