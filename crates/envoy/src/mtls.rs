//! The mutual TLS mode that `PeerAuthentication` sets for workloads, and what clients derive from
//! it.
//!
//! Servers use [`of_proxy`] for the modes of their ports. Clients use [`in_namespace`] for
//! endpoints and [`of_service`] for a service as a whole, where only the policies of a namespace
//! and of the mesh apply, since the workload that will answer is unknown. Agrees with Istio's
//! `pilot/pkg/model/authentication.go` and `pilot/pkg/security/authn`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::root_and_own::root_namespace;
use crate::service_port::of_port;
use navarch_api::istio::{MutualTlsMode, PeerAuthentication};
use navarch_api::names::Namespace;
use navarch_api::object::Object;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::{Labels, Resolution, Service, ServiceKey, TlsMode};

/// Whether a port accepts mutual TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MtlsMode {
    /// Mutual TLS is not accepted.
    Disable,
    /// Mutual TLS and plain text are accepted. The default without a policy.
    #[default]
    Permissive,
    /// Only mutual TLS is accepted.
    Strict,
}

/// The modes of one workload, from all policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkloadMtls {
    /// The mode of all ports that are not listed.
    pub mode: MtlsMode,
    /// The modes of single ports, by the port of the workload.
    pub ports: BTreeMap<u16, MtlsMode>,
}

/// The policies of one namespace, as the queries below need them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NamespacePolicies {
    /// The policy without a selector, the oldest if there are several. `Some(None)` is a policy
    /// that inherits.
    whole: Option<Option<MtlsMode>>,
    /// Policies with a selector, oldest first.
    selected: Vec<SelectedPolicy>,
}

/// A policy for some workloads of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SelectedPolicy {
    /// Labels that a workload must have.
    selector: Labels,
    /// The mode of all ports, `None` to inherit.
    mode: Option<MtlsMode>,
    /// The modes of single ports, `None` to inherit.
    ports: BTreeMap<u16, Option<MtlsMode>>,
}

/// The policies that can apply to workloads of a namespace.
#[derive(Clone, Debug)]
pub struct NamespaceMtls {
    /// Those of the root namespace.
    mesh: Arc<NamespacePolicies>,
    /// Those of the namespace; `None` for the root namespace.
    own: Option<Arc<NamespacePolicies>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PoliciesOf(Namespace);

/// The mode of a namespace's own policy or the mesh's; `None` without such a policy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ModeOfNamespace(Namespace);

/// The modes of the view's proxy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct OfProxy;

/// Whether all endpoints accept mutual TLS on connections to the original destination of a service
/// port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct AllEndpointsAcceptMtls {
    service: ServiceKey,
    port: u16,
}

impl MtlsMode {
    /// The mode of a policy; `None` for `UNSET`.
    fn of(mode: MutualTlsMode) -> Option<Self> {
        match mode {
            MutualTlsMode::Unset => None,
            MutualTlsMode::Disable => Some(Self::Disable),
            MutualTlsMode::Permissive => Some(Self::Permissive),
            MutualTlsMode::Strict => Some(Self::Strict),
        }
    }
}

impl WorkloadMtls {
    /// The mode of the workload's port `port`; `mode` if no policy has a mode for this port.
    #[must_use]
    pub fn on_port(&self, port: u16) -> MtlsMode {
        self.ports.get(&port).copied().unwrap_or(self.mode)
    }
}

/// The modes of the view's proxy, by ports of its workload. All proxies with the same modes share
/// the results that depend on them.
#[must_use]
pub fn of_proxy(view: &View<'_>) -> Arc<WorkloadMtls> {
    view.derived(&OfProxy)
}

/// The presumed mode of a service port for clients, `None` for services outside the mesh.
///
/// `passthrough` means that the client connects to the original destination; then one endpoint
/// without a sidecar disables mutual TLS for all, since endpoints cannot be distinguished.
#[must_use]
pub fn of_service(
    view: &View<'_>,
    service: &Service,
    port: u16,
    passthrough: bool,
) -> Option<MtlsMode> {
    if service.mesh_external {
        return None;
    }
    if passthrough || service.resolution == Resolution::Passthrough {
        let query = AllEndpointsAcceptMtls {
            service: service.key.clone(),
            port,
        };
        if !*view.get(&query) {
            return Some(MtlsMode::Disable);
        }
    }
    Some(mode_of_namespace(view, &service.key.namespace).unwrap_or_default())
}

/// The mode of the policy of a namespace or of the mesh; `None` if there is no such policy.
#[must_use]
pub fn mode_of_namespace(view: &View<'_>, namespace: &Namespace) -> Option<MtlsMode> {
    *view.get(&ModeOfNamespace(namespace.clone()))
}

/// The policies that can apply to workloads of a namespace, read once for many workloads.
#[must_use]
pub fn in_namespace(view: &View<'_>, namespace: &Namespace) -> NamespaceMtls {
    let root = root_namespace(view);
    let mesh = view.get(&PoliciesOf(root.clone()));
    let own = (*namespace != root).then(|| view.get(&PoliciesOf(namespace.clone())));
    NamespaceMtls { mesh, own }
}

impl NamespaceMtls {
    /// As [`in_namespace`], from the policies of the root namespace and of the namespace if that is
    /// another: for callers without a proxy.
    #[must_use]
    pub fn of_policies<'a>(
        mesh: impl Iterator<Item = &'a Arc<Object<PeerAuthentication>>>,
        own: Option<impl Iterator<Item = &'a Arc<Object<PeerAuthentication>>>>,
    ) -> Self {
        Self {
            mesh: Arc::new(NamespacePolicies::new(mesh)),
            own: own.map(|own| Arc::new(NamespacePolicies::new(own))),
        }
    }

    /// Merges the policies that select a workload: mesh, namespace, workload, port.
    #[must_use]
    pub fn of(&self, selects: impl Fn(&Labels) -> bool) -> WorkloadMtls {
        let own = self.own.as_deref();
        let workload =
            own.and_then(|own| own.selected.iter().find(|policy| selects(&policy.selector)));
        let mode = workload
            .and_then(|policy| policy.mode)
            .or_else(|| own.and_then(|own| own.whole).flatten())
            .or_else(|| self.mesh.whole.flatten())
            .unwrap_or_default();
        let ports = workload.map_or_else(BTreeMap::new, |policy| {
            policy
                .ports
                .iter()
                .map(|(port, own)| (*port, own.unwrap_or(mode)))
                .collect()
        });
        WorkloadMtls { mode, ports }
    }
}

impl NamespacePolicies {
    /// Groups the policies of one namespace.
    fn new<'a>(objects: impl Iterator<Item = &'a Arc<Object<PeerAuthentication>>>) -> Self {
        let mut objects: Vec<&Arc<Object<PeerAuthentication>>> = objects.collect();
        objects.sort_by(|a, b| {
            (a.meta.created, &a.meta.key.name).cmp(&(b.meta.created, &b.meta.key.name))
        });
        let mut policies = Self::default();

        for object in objects {
            let mode = MtlsMode::of(object.spec.mode());
            let labels = object
                .spec
                .selector
                .as_ref()
                .map(|selector| &selector.match_labels);

            match labels.filter(|labels| !labels.is_empty()) {
                None => policies.whole = policies.whole.or(Some(mode)),
                Some(labels) => policies.selected.push(SelectedPolicy {
                    selector: labels
                        .iter()
                        .map(|(k, v)| (Arc::from(k.as_str()), Arc::from(v.as_str())))
                        .collect(),
                    mode,
                    ports: object
                        .spec
                        .port_modes()
                        .filter_map(|(port, mode)| {
                            Some((u16::try_from(port).ok()?, MtlsMode::of(mode)))
                        })
                        .collect(),
                }),
            }
        }

        policies
    }
}

impl Query for PoliciesOf {
    type Value = NamespacePolicies;

    fn compute(&self, view: &View<'_>) -> NamespacePolicies {
        NamespacePolicies::new(view.list::<PeerAuthentication>(&self.0))
    }
}

impl Query for ModeOfNamespace {
    type Value = Option<MtlsMode>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let root = root_namespace(view);
        // A mesh policy that inherits is permissive; a namespace policy that inherits has the mode
        // of the mesh.
        let mesh = view
            .get(&PoliciesOf(root.clone()))
            .whole
            .map(Option::unwrap_or_default);
        if self.0 == root {
            return mesh;
        }
        match view.get(&PoliciesOf(self.0.clone())).whole {
            Some(own) => Some(own.or(mesh).unwrap_or_default()),
            None => mesh,
        }
    }
}

impl Query for OfProxy {
    type Value = WorkloadMtls;

    fn compute(&self, view: &View<'_>) -> WorkloadMtls {
        let proxy = view.proxy();
        in_namespace(view, &proxy.namespace()).of(|selector| proxy.selected_by(selector))
    }
}

impl ProxyQuery for OfProxy {}

impl Query for AllEndpointsAcceptMtls {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let Some(service) = view.service(&self.service) else {
            return false;
        };
        let Some(endpoints) = view.endpoints(&self.service) else {
            return false;
        };
        let mut served = of_port(endpoints, service, self.port).peekable();
        served.peek().is_some()
            && served.all(|endpoint| endpoint.workload.tls_mode != TlsMode::Disabled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_mesh::TestMesh;
    use navarch_api::istio::{MutualTls, PolicyWorkloadSelector};
    use navarch_api::object::{NamespacedName, ObjectMeta};

    /// A policy of the given age in seconds.
    fn policy(
        name: &str,
        age: i64,
        mode: MutualTlsMode,
        label: Option<&str>,
    ) -> Arc<Object<PeerAuthentication>> {
        let selector = label.map(|label| PolicyWorkloadSelector {
            match_labels: BTreeMap::from([("app".to_owned(), label.to_owned())]),
        });

        Arc::new(Object {
            meta: ObjectMeta {
                key: NamespacedName::new("", name),
                created: jiff::Timestamp::from_second(1_000_000 - age).ok(),
                ..ObjectMeta::default()
            },
            spec: PeerAuthentication {
                selector,
                mtls: Some(MutualTls { mode }),
                port_level_mtls: Some(BTreeMap::from([
                    (
                        80,
                        MutualTls {
                            mode: MutualTlsMode::Disable,
                        },
                    ),
                    (
                        81,
                        MutualTls {
                            mode: MutualTlsMode::Unset,
                        },
                    ),
                ])),
            },
        })
    }

    #[test]
    fn the_oldest_policy_without_selector_holds_for_the_namespace() {
        let objects = [
            policy("a", 1, MutualTlsMode::Strict, None),
            policy("b", 2, MutualTlsMode::Disable, None),
            policy("c", 3, MutualTlsMode::Strict, Some("web")),
        ];
        let policies = NamespacePolicies::new(objects.iter());
        assert_eq!(policies.whole, Some(Some(MtlsMode::Disable)));
        assert_eq!(policies.selected.len(), 1);
    }

    #[test]
    fn ports_keep_that_they_inherit() {
        let policies =
            NamespacePolicies::new([policy("a", 1, MutualTlsMode::Strict, Some("web"))].iter());
        let ports = &policies.selected[0].ports;
        assert_eq!(ports.get(&80), Some(&Some(MtlsMode::Disable)));
        assert_eq!(ports.get(&81), Some(&None));
    }

    #[test]
    fn an_unlisted_port_has_the_mode_of_the_workload() {
        let merged = WorkloadMtls {
            mode: MtlsMode::Strict,
            ports: BTreeMap::from([(80, MtlsMode::Disable)]),
        };
        assert_eq!(merged.on_port(80), MtlsMode::Disable);
        assert_eq!(merged.on_port(81), MtlsMode::Strict);
    }

    /// A PeerAuthentication as YAML.
    fn peer(namespace: &str, name: &str, spec: &str) -> String {
        format!(
            "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\n\
             metadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n---\n"
        )
    }

    /// What a sidecar of `shop` with the label `app: web` takes on ports 80 and 90, under these
    /// policies.
    fn taken(policies: &[String]) -> (MtlsMode, MtlsMode) {
        let mut mesh = TestMesh::new(&policies.concat());
        let proxy = mesh.sidecar("shop", "web");
        let modes = mesh.query(proxy, &OfProxy);
        (modes.on_port(80), modes.on_port(90))
    }

    #[test]
    fn the_narrower_policy_wins_and_unset_inherits() {
        use MtlsMode::{Disable, Permissive, Strict};

        let mesh = peer("istio-system", "default", "{mtls: {mode: STRICT}}");
        let namespace =
            |mode: &str| peer("shop", "default", &format!("{{mtls: {{mode: {mode}}}}}"));
        let workload = |rest: &str| {
            peer(
                "shop",
                "web",
                &format!("{{selector: {{matchLabels: {{app: web}}}}, {rest}}}"),
            )
        };

        assert_eq!(taken(&[]), (Permissive, Permissive));
        assert_eq!(taken(std::slice::from_ref(&mesh)), (Strict, Strict));
        assert_eq!(taken(&[mesh.clone(), namespace("UNSET")]), (Strict, Strict));
        assert_eq!(
            taken(&[mesh.clone(), namespace("DISABLE")]),
            (Disable, Disable)
        );
        assert_eq!(
            taken(&[
                mesh.clone(),
                namespace("DISABLE"),
                workload("mtls: {mode: PERMISSIVE}")
            ]),
            (Permissive, Permissive)
        );

        let ports = workload("mtls: {}, portLevelMtls: {90: {mode: DISABLE}, 80: {}}");
        assert_eq!(taken(&[mesh.clone(), ports]), (Strict, Disable));
    }

    #[test]
    fn a_policy_with_a_selector_applies_only_in_its_namespace() {
        let selects = "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}";
        for namespace in ["istio-system", "bank"] {
            assert_eq!(
                taken(&[peer(namespace, "web", selects)]).0,
                MtlsMode::Permissive,
                "{namespace}"
            );
        }
        assert_eq!(taken(&[peer("shop", "web", selects)]).0, MtlsMode::Strict);
    }

    #[test]
    fn clients_know_the_policies_of_the_namespace_and_the_mesh() {
        let mut mesh = TestMesh::new(&peer(
            "shop",
            "web",
            "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}",
        ));
        let proxy = mesh.sidecar("bank", "client");
        let of = |mesh: &TestMesh, namespace: &str| {
            *mesh.query(proxy, &ModeOfNamespace(Namespace::new(namespace)))
        };

        assert_eq!(
            of(&mesh, "shop"),
            None,
            "nobody knows which workload answers"
        );
        mesh.apply(&peer("istio-system", "default", "{mtls: {}}"));
        assert_eq!(
            of(&mesh, "shop"),
            Some(MtlsMode::Permissive),
            "a mesh that inherits is permissive"
        );

        mesh.apply(&peer("shop", "default", "{mtls: {mode: DISABLE}}"));
        assert_eq!(of(&mesh, "shop"), Some(MtlsMode::Disable));
        assert_eq!(of(&mesh, "bank"), Some(MtlsMode::Permissive));
    }
}
