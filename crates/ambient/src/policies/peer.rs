//! Conversion of PeerAuthentications for ztunnel: a policy that denies peers without an identity
//! (Istio's `convertPeerAuthentication` and `convertedSelectorPeerAuthentications`).

use std::sync::Arc;

use navarch_proto::istio::security::{Action, Authorization, Group, Match, Rules, Scope};

use super::{CONVERTED, STATIC_STRICT, selected_labels, without_identity};
use crate::mesh::MeshFacts;
use navarch_api::istio::{MutualTlsMode, PeerAuthentication};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::Labels;
use navarch_registry::selects;

/// The PeerAuthentications of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NamespacePeers {
    /// The mode of the oldest one without a selector; `None` if there is none.
    pub(super) whole: Option<MutualTlsMode>,
    /// The mode of the oldest without a selector. An empty selector that is set selects the
    /// policy's own namespace only.
    mesh_wide: Option<MutualTlsMode>,
    /// Those that select by labels, oldest first.
    selected: Vec<SelectedPeers>,
}

/// A PeerAuthentication for some workloads.
#[derive(Clone, Debug, PartialEq)]
struct SelectedPeers {
    name: Arc<str>,
    /// Labels that a workload must have.
    selector: Labels,
    /// The mode of ports that are not listed.
    mode: MutualTlsMode,
    /// The modes of `portLevelMtls`, if any.
    ports: Option<Vec<MutualTlsMode>>,
}

/// The PeerAuthentications of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeersOf(pub(super) Namespace);

impl Query for PeersOf {
    type Value = NamespacePeers;

    fn compute(&self, view: &View<'_>) -> NamespacePeers {
        let mut all: Vec<&Arc<Object<PeerAuthentication>>> =
            view.list::<PeerAuthentication>(&self.0).collect();

        // Of equally old ones the first by name is used.
        all.sort_by_key(|policy| policy.meta.created);
        let mut peers = NamespacePeers::default();

        for policy in all {
            let mode = policy.spec.mode();
            let selector = selected_labels(policy.spec.selector.as_ref());

            if selector.is_empty() {
                peers.whole.get_or_insert(mode);
                if policy.spec.selector.is_none() {
                    peers.mesh_wide.get_or_insert(mode);
                }
                continue;
            }

            let ports = policy.spec.port_level_mtls.as_ref();
            peers.selected.push(SelectedPeers {
                name: policy.meta.key.name.clone(),
                selector,
                mode,
                ports: ports.map(|ports| ports.values().map(|mtls| mtls.mode).collect()),
            });
        }

        peers
    }
}

/// The policies that enforce the PeerAuthentications of the mesh and of the namespace for a
/// workload with these labels; `own` is `None` in the root namespace, whose PeerAuthentications are
/// those of the mesh.
pub(super) fn policies_of(
    labels: &Labels,
    namespace: &Namespace,
    root: &Namespace,
    mesh: &NamespacePeers,
    own: Option<&NamespacePeers>,
) -> Vec<String> {
    let of_mesh = if own.is_some() {
        mesh.mesh_wide
    } else {
        mesh.whole
    };

    let mut is_strict = of_mesh == Some(MutualTlsMode::Strict);
    if let Some(mode) = own
        .and_then(|own| own.whole)
        .filter(|mode| *mode != MutualTlsMode::Unset)
    {
        is_strict = mode == MutualTlsMode::Strict;
    }
    let mut selected = own.into_iter().flat_map(|own| &own.selected);
    let mut by_port = None;

    if let Some(policy) = selected.find(|policy| selects(&policy.selector, labels)) {
        let has = |modes: &[MutualTlsMode]| {
            policy
                .ports
                .iter()
                .flatten()
                .any(|mode| modes.contains(mode))
        };

        let is_exempt;

        match policy.mode {
            MutualTlsMode::Strict => {
                is_strict = true;
                is_exempt = has(&[MutualTlsMode::Permissive, MutualTlsMode::Disable]);
            }
            MutualTlsMode::Permissive | MutualTlsMode::Disable => {
                is_strict = false;
                is_exempt = false;
            }
            // Unlike above, a port with DISABLE is not an exception here.
            MutualTlsMode::Unset => is_exempt = is_strict && has(&[MutualTlsMode::Permissive]),
        }

        // With exceptions for some ports the converted policy covers the strict ports, too.
        if is_exempt || !is_strict && has(&[MutualTlsMode::Strict]) {
            by_port = Some(format!("{namespace}/{CONVERTED}{}", policy.name));
        }

        is_strict &= !is_exempt;
    }

    let everywhere = is_strict.then(|| format!("{root}/{STATIC_STRICT}"));
    let mut policies: Vec<String> = everywhere.into_iter().chain(by_port).collect();
    policies.sort_unstable();
    policies
}

/// The converted policy of a PeerAuthentication with `portLevelMtls`; `None` if the static strict
/// policy or no policy has the same effect.
pub(super) fn converted(name: &NamespacedName, view: &View<'_>) -> Option<Authorization> {
    let mesh = view.get(&MeshFacts);
    let root = &mesh.root_namespace;
    let object = view.object::<PeerAuthentication>(name)?;
    let spec = &object.spec;
    if name.namespace == *root || spec.selector.is_none() || spec.port_modes().next().is_none() {
        return None;
    }

    let mesh_mode = namespace_mode(root, view);
    let namespace_mode = namespace_mode(&name.namespace, view);
    let groups = groups(spec, namespace_mode, mesh_mode)?;

    Some(Authorization {
        name: format!("{CONVERTED}{}", name.name),
        namespace: name.namespace.to_string(),
        scope: Scope::WorkloadSelector.into(),
        action: Action::Deny.into(),
        groups,
        ..Authorization::default()
    })
}

/// The mode of the oldest PeerAuthentication of a namespace without a selector; `None` if none
/// exists.
fn namespace_mode(namespace: &Namespace, view: &View<'_>) -> Option<MutualTlsMode> {
    let whole = view
        .list::<PeerAuthentication>(namespace)
        .filter(|policy| policy.spec.selector.is_none());
    // `min_by_key` returns the first of equally old ones.
    whole
        .min_by_key(|policy| policy.meta.created)
        .map(|policy| policy.spec.mode())
}

/// The rules that deny; `None` if the policy for all ports covers them.
fn groups(
    spec: &PeerAuthentication,
    namespace: Option<MutualTlsMode>,
    mesh: Option<MutualTlsMode>,
) -> Option<Vec<Group>> {
    use MutualTlsMode::{Disable, Permissive, Strict, Unset};

    let mode = spec.mode();
    let inherits = |mode: Option<MutualTlsMode>| matches!(mode, None | Some(Unset));
    let is_mesh_strict = mesh == Some(Strict);
    let is_strict_above = namespace == Some(Strict) || inherits(namespace) && is_mesh_strict;
    let is_strict = mode == Strict || mode == Unset && is_strict_above;

    // Exceptions are only needed from a strict mode. A namespace policy with mode UNSET is not
    // strict.
    let takes_exceptions = match mode {
        Strict => true,
        Permissive | Disable => false,
        Unset => match namespace {
            Some(mode) => mode == Strict,
            None => is_mesh_strict,
        },
    };

    let mut rules: Vec<Rules> = (mode == Strict)
        .then(|| without_identity(None))
        .into_iter()
        .collect();
    let mut groups = Vec::new();
    let mut has_exceptions = false;

    for (port, port_mode) in spec.port_modes() {
        match port_mode {
            Strict if !is_strict => groups.push(Group {
                rules: vec![without_identity(Some(port))],
            }),
            Permissive | Disable if takes_exceptions => {
                has_exceptions = true;
                let other = Match {
                    not_destination_ports: vec![port],
                    ..Match::default()
                };
                rules.push(Rules {
                    matches: vec![other],
                });
            }
            Strict | Permissive | Disable | Unset => {}
        }
    }

    if mode == Strict && !has_exceptions || rules.is_empty() && groups.is_empty() {
        return None;
    }

    if is_strict_above && has_exceptions {
        rules.push(without_identity(None));
    }

    if !rules.is_empty() {
        groups.push(Group { rules });
    }

    Some(groups)
}
