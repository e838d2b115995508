//! Which providers log, trace and count for the proxy: the defaults of mesh config.

use crate::api::mesh::ExtensionProvider;
use crate::push::query::Query;
use crate::push::view::View;

use super::class::ListenerClass;
use super::provider;

/// The access log providers of the listeners of a class; `None` leaves it to mesh config.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LoggingOf {
    /// The class.
    pub(super) class: ListenerClass,
}

/// One access log provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoggingProvider {
    /// Its name.
    pub(super) name: String,
    /// Whether it is named, but does not log here.
    pub(super) disabled: bool,
    /// The CEL expression that entries must fulfil.
    pub(super) expression: Option<String>,
}

/// How the listeners of a class trace; `None` leaves it to mesh config.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TracingOf {
    /// The class.
    pub(super) class: ListenerClass,
}

/// How requests are traced.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TracingSpec {
    /// The provider; `None` when there is none of the name that was given.
    pub(super) provider: Option<ExtensionProvider>,
    /// Whether nothing is traced.
    pub(super) disabled: bool,
    /// Whether the request id says whether a request is traced.
    pub(super) use_request_id: bool,
    /// Whether spans get Istio's own tags.
    pub(super) istio_tags: bool,
}

/// The metrics providers of the listeners of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MetricsOf {
    /// The class.
    pub(super) class: ListenerClass,
}

impl Query for LoggingOf {
    type Value = Option<Vec<LoggingProvider>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut names = view.mesh().config.default_providers.access_logging.clone();
        names.sort_unstable();
        names.dedup();
        let provider = |name: String| LoggingProvider { name, disabled: false, expression: None };
        (!names.is_empty()).then(|| names.into_iter().map(provider).collect())
    }
}

impl Query for TracingOf {
    type Value = Option<TracingSpec>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mesh = &view.mesh().config;
        let name = mesh.default_providers.tracing.first()?;
        let provider = provider::find(&mesh.extension_providers, name).cloned();
        Some(TracingSpec { disabled: provider.is_none(), provider, use_request_id: true, istio_tags: true })
    }
}

impl Query for MetricsOf {
    type Value = Vec<ExtensionProvider>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mesh = &view.mesh().config;
        let mut names = mesh.default_providers.metrics.clone();
        names.sort_unstable();
        names.dedup();
        names.iter().filter_map(|name| provider::find(&mesh.extension_providers, name)).cloned().collect()
    }
}
