//! The logging, tracing and metrics providers of the proxy: the defaults of mesh config, changed by
//! Telemetries.
//!
//! One Telemetry without selector applies to the mesh (in the root namespace), one to the
//! namespace, and all that select the proxy override them. Agrees with Istio's
//! `pilot/pkg/model/telemetry.go`.

mod described;
mod logging;
mod metrics;
mod tracing;

pub use described::{DescribeTelemetry, TelemetryDescription};
pub(super) use logging::{LoggingOf, LoggingProvider};
pub(super) use metrics::{Counting, CountingProvider, MetricsOf};
pub(super) use tracing::TracingOf;

use std::sync::Arc;

use super::class::ListenerClass;
use crate::policy::{self, Policy, PolicyService};
use navarch_api::istio::{ProviderRef, Telemetry, TelemetryMode, TelemetrySelector};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The Telemetries that apply to the proxy, from the widest to the narrowest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TelemetriesOf {
    /// The service of the listeners at its waypoint. If it is in another namespace, that one takes
    /// precedence.
    service: Option<PolicyService>,
}

impl Query for TelemetriesOf {
    type Value = Vec<Arc<Object<Telemetry>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let service = self.service.as_ref();
        let namespaces = policy::namespaces::<Telemetry>(view);
        let is_own = |namespace: &&Namespace| {
            view.proxy()
                .namespace_among([(*namespace).clone()])
                .is_some()
        };
        let elsewhere = service
            .map(|service| &service.namespace)
            .filter(|namespace| !is_own(namespace));
        let wide = namespaces.iter().chain(elsewhere);
        let mut found: Vec<Arc<Object<Telemetry>>> = wide
            .filter_map(|namespace| whole(view, namespace))
            .collect();

        // Only Telemetries of one namespace may select it.
        let narrow = elsewhere.or_else(|| namespaces.last().filter(is_own));
        for object in narrow
            .into_iter()
            .flat_map(|namespace| policy::oldest_first::<Telemetry>(view, namespace))
        {
            if !is_namespace_wide(object) && policy::attaches(view, object, service) {
                found.push(object.clone());
            }
        }

        found
    }
}

/// The narrowest Telemetry of the proxy that sets a label of metrics to an expression.
pub(super) fn setting_label(
    view: &View<'_>,
    service: Option<&PolicyService>,
    label: &str,
    expression: &str,
) -> Option<NamespacedName> {
    let telemetries = view.get(&TelemetriesOf {
        service: service.cloned(),
    });
    let sets_label = |object: &&Arc<Object<Telemetry>>| {
        let entries = object.spec.metrics.iter();
        let overrides = entries.flat_map(|entry| &entry.overrides);
        let mut changes = overrides.filter_map(|change| change.tag_overrides.get(label));
        changes.any(|change| change.value.trim() == expression)
    };
    let narrowest = telemetries.iter().rev().find(sets_label)?;
    Some(narrowest.meta.key())
}

/// The Telemetry for a whole namespace: the oldest.
fn whole(view: &View<'_>, namespace: &Namespace) -> Option<Arc<Object<Telemetry>>> {
    policy::oldest_first::<Telemetry>(view, namespace)
        .into_iter()
        .find(|object| is_namespace_wide(object))
        .cloned()
}

/// Whether a Telemetry is for its whole namespace.
fn is_namespace_wide(object: &Object<Telemetry>) -> bool {
    let selects = object
        .spec
        .selector
        .as_ref()
        .is_some_and(|selector| !selector.match_labels.is_empty());
    !selects && object.spec.targets().is_empty()
}

/// The side of the listeners of a class. Gateways are clients of their backends.
fn side(class: ListenerClass) -> TelemetryMode {
    match class {
        ListenerClass::SidecarInbound => TelemetryMode::Server,
        ListenerClass::SidecarOutbound | ListenerClass::Gateway => TelemetryMode::Client,
    }
}

/// Whether a selector includes a side.
fn is_for(selector: Option<&TelemetrySelector>, side: TelemetryMode) -> bool {
    selector.is_none_or(|selector| {
        selector.mode == TelemetryMode::ClientAndServer || selector.mode == side
    })
}

fn names(providers: &[ProviderRef]) -> Vec<&str> {
    providers
        .iter()
        .map(|provider| provider.name.as_str())
        .collect()
}
