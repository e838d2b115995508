//! Tracing settings of Telemetries.

use std::collections::BTreeMap;

use super::{TelemetriesOf, is_for, names, side};
use crate::filters::class::ListenerClass;
use crate::filters::provider;
use crate::policy::PolicyService;
use navarch_api::istio::TracingTag;
use navarch_api::mesh::ExtensionProvider;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The tracing of the listeners of a class; `None` means mesh config decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::filters) struct TracingOf {
    pub(in crate::filters) class: ListenerClass,
    /// The service of the listeners, at its waypoint.
    pub(in crate::filters) service: Option<PolicyService>,
}

/// Tracing settings.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, as in Telemetry"
)]
pub(in crate::filters) struct TracingSpec {
    /// The provider; `None` if the name is unknown.
    pub(in crate::filters) provider: Option<ExtensionProvider>,
    pub(in crate::filters) disabled: bool,
    /// The percentage of traced requests; `None` means the proxy's configuration decides.
    pub(in crate::filters) sampling: Option<f64>,
    /// Tags of spans; empty means those of the proxy's configuration.
    pub(in crate::filters) tags: BTreeMap<String, TracingTag>,
    /// Whether the sampling decision is packed into the request id.
    pub(in crate::filters) use_request_id: bool,
    /// Whether spans get Istio's own tags.
    pub(in crate::filters) istio_tags: bool,
    /// Whether the trace context is not propagated to the next hop.
    pub(in crate::filters) keeps_context: bool,
}

impl Query for TracingOf {
    type Value = Option<TracingSpec>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mesh = &view.mesh().config;
        let telemetries = view.get(&TelemetriesOf {
            service: self.service.clone(),
        });
        let entries: Vec<_> = telemetries
            .iter()
            .flat_map(|object| &object.spec.tracing)
            .collect();

        let default = mesh.default_providers.tracing.first();
        if entries.is_empty() && default.is_none() {
            return None;
        }

        let named = |name: &str| provider::find(&mesh.extension_providers, name).cloned();
        let mut spec = TracingSpec {
            provider: default.and_then(|name| named(name)),
            disabled: false,
            sampling: None,
            tags: BTreeMap::new(),
            use_request_id: true,
            istio_tags: true,
            keeps_context: false,
        };

        for entry in entries
            .into_iter()
            .filter(|entry| is_for(entry.matches.as_ref(), side(self.class)))
        {
            if let Some(name) = names(&entry.providers).first() {
                spec.provider = named(name);
            }
            spec.disabled = entry.disable_span_reporting.unwrap_or(spec.disabled);
            if let Some(tags) = &entry.custom_tags {
                spec.tags.clone_from(tags);
            }
            spec.sampling = entry.random_sampling_percentage.or(spec.sampling);
            spec.use_request_id = entry
                .use_request_id_for_trace_sampling
                .unwrap_or(spec.use_request_id);
            spec.istio_tags = entry.enable_istio_tags.unwrap_or(spec.istio_tags);
            spec.keeps_context = entry
                .disable_context_propagation
                .unwrap_or(spec.keeps_context);
        }

        spec.disabled |= spec.provider.is_none();
        Some(spec)
    }
}
