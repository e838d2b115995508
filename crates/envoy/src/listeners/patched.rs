//! Listeners after EnvoyFilter patches.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_proto::envoy::config::listener::v3::Listener;

use super::address::VIRTUAL_INBOUND;
use super::{virtual_inbound, virtual_outbound};
use crate::hbone;
use crate::patches::{PatchClass, added_listeners, names_change, patch_listener, patches};
use navarch_api::istio::PatchContext;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;

/// One generated listener with its patches. Only used if patches add, remove or rename listeners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Patched {
    /// The generated name.
    name: String,
}

/// The listeners of a proxy, if patches add, remove or rename listeners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Origins;

/// The origin of a listener.
#[derive(Clone, Debug, PartialEq)]
enum Origin {
    /// Generated under this name, which is its own unless a patch renames it.
    Generated(String),
    /// Added by a patch.
    Added(Box<Listener>),
}

/// The names of all listeners; `None` if they are the generated ones.
pub(super) fn names(view: &View<'_>) -> Option<Vec<String>> {
    let patches = patches(view, PatchClass::Listeners)?;
    names_change(&patches).then(|| view.get(&Origins).keys().cloned().collect())
}

pub(super) fn build(view: &View<'_>, name: &str) -> Option<Listener> {
    let Some(patches) = patches(view, PatchClass::Listeners) else {
        return super::build(name, view);
    };
    if !names_change(&patches) {
        return patched(view, name);
    }
    match view.get(&Origins).get(name)? {
        Origin::Generated(name) => (*view.get(&Patched { name: name.clone() })).clone(),
        Origin::Added(listener) => Some((**listener).clone()),
    }
}

/// A generated listener with its patches.
fn patched(view: &View<'_>, name: &str) -> Option<Listener> {
    let listener = super::build(name, view)?;
    if name == hbone::ORIGINATE && view.proxy().kind() != ProxyKind::Waypoint {
        // As in Istio, it is added last.
        return Some(listener);
    }
    match patches(view, PatchClass::Listeners) {
        Some(patches) => patch_listener(view, &patches, context(view, name), listener),
        None => Some(listener),
    }
}

/// The patch context of a generated listener.
fn context(view: &View<'_>, name: &str) -> PatchContext {
    if view.proxy().kind() == ProxyKind::Router {
        return PatchContext::Gateway;
    }
    if view.proxy().kind() == ProxyKind::Waypoint || matches!(name, hbone::TERMINATE | hbone::MAIN)
    {
        return PatchContext::SidecarInbound;
    }
    let is_inbound = name == VIRTUAL_INBOUND
        || (name != virtual_outbound::NAME
            && virtual_inbound::custom_names(view)
                .iter()
                .any(|inbound| inbound == name));
    if is_inbound {
        PatchContext::SidecarInbound
    } else {
        PatchContext::SidecarOutbound
    }
}

impl Query for Patched {
    type Value = Option<Listener>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        patched(view, &self.name)
    }
}

impl Query for Origins {
    type Value = BTreeMap<String, Origin>;

    /// If patches result in two listeners of the same name, generated ones take precedence, then
    /// those that are added first.
    fn compute(&self, view: &View<'_>) -> Self::Value {
        let patches = patches(view, PatchClass::Listeners).unwrap_or_else(|| Arc::new(Vec::new()));
        let mut origins = BTreeMap::new();

        for name in super::generated_names(view) {
            if let Some(listener) = view.get(&Patched { name: name.clone() }).as_ref() {
                origins
                    .entry(listener.name.clone())
                    .or_insert(Origin::Generated(name));
            }
        }

        let contexts: &[PatchContext] = match view.proxy().kind() {
            ProxyKind::Sidecar | ProxyKind::Waypoint => {
                &[PatchContext::SidecarInbound, PatchContext::SidecarOutbound]
            }
            ProxyKind::Router => &[PatchContext::Gateway],
            ProxyKind::Ztunnel | ProxyKind::AgentGateway => &[],
        };

        for listener in contexts
            .iter()
            .flat_map(|context| added_listeners(view, &patches, *context))
        {
            origins
                .entry(listener.name.clone())
                .or_insert_with(|| Origin::Added(Box::new(listener)));
        }

        origins
    }
}
