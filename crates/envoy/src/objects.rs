//! Istio's objects as users wrote them, for control planes that take their configuration from this
//! one (MCP over xDS).
//!
//! Objects that are generated from others, such as the VirtualServices of an Ingress, are not
//! included: the receiving control plane generates them again.

use bytes::Bytes;

use navarch_api::any_object::AnyObject;
use navarch_api::istio as kinds;
use navarch_api::mcp;
use navarch_api::names::ResourceName;
use navarch_api::object::{Kind, NamespacedName, Object};
use navarch_push::Stored;
use navarch_push::view::View;

/// Calls a function with the Rust type of a served kind; returns the default for other kinds.
macro_rules! of_kind {
    ($kind:expr, $function:ident($($argument:expr),*)) => {{
        #[allow(clippy::wildcard_enum_match_arm, reason = "only a few kinds have remarks; not linted in some expansions")]
        match $kind {
            Kind::AuthorizationPolicy => $function::<kinds::AuthorizationPolicy>($($argument),*),
            Kind::DestinationRule => $function::<kinds::DestinationRule>($($argument),*),
            Kind::EnvoyFilter => $function::<kinds::EnvoyFilter>($($argument),*),
            Kind::Gateway => $function::<kinds::Gateway>($($argument),*),
            Kind::PeerAuthentication => $function::<kinds::PeerAuthentication>($($argument),*),
            Kind::ProxyConfig => $function::<kinds::ProxyConfig>($($argument),*),
            Kind::RequestAuthentication => $function::<kinds::RequestAuthentication>($($argument),*),
            Kind::ServiceEntry => $function::<kinds::ServiceEntry>($($argument),*),
            Kind::Sidecar => $function::<kinds::Sidecar>($($argument),*),
            Kind::Telemetry => $function::<kinds::Telemetry>($($argument),*),
            Kind::TrafficExtension => $function::<kinds::TrafficExtension>($($argument),*),
            Kind::VirtualService => $function::<kinds::VirtualService>($($argument),*),
            Kind::WasmPlugin => $function::<kinds::WasmPlugin>($($argument),*),
            Kind::WorkloadEntry => $function::<kinds::WorkloadEntry>($($argument),*),
            Kind::WorkloadGroup => $function::<kinds::WorkloadGroup>($($argument),*),
            _ => Default::default(),
        }
    }};
}

/// The names of all objects of a kind, as `namespace/name`.
pub(super) fn names(kind: Kind, view: &View<'_>) -> Vec<ResourceName> {
    of_kind!(kind, names_of(view))
}

/// The object of a kind and this name.
pub(super) fn resource(kind: Kind, name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let (namespace, name) = name.as_str().split_once('/')?;
    of_kind!(
        kind,
        resource_of(&NamespacedName::new(namespace, name), view)
    )
}

/// The names of all objects of one type.
fn names_of<T: Stored>(view: &View<'_>) -> Vec<ResourceName> {
    view.names::<T>()
        .map(|name| ResourceName::new(format!("{}/{}", name.namespace, name.name)))
        .collect()
}

/// The object of one type and this name. One that cannot be encoded is skipped with a remark.
fn resource_of<T: Stored + Clone>(name: &NamespacedName, view: &View<'_>) -> Option<Bytes>
where
    AnyObject: From<std::sync::Arc<Object<T>>>,
{
    let object = view.object::<T>(name)?;
    let encoded = mcp::encode(&AnyObject::from(object.clone()));
    encoded
        .inspect_err(|error| {
            view.remark(format!(
                "{} {name}: {error}; the object is not served over xDS",
                T::KIND
            ))
        })
        .ok()
}
