//! Tracing of requests in HTTP connection managers.

mod headers;
mod open_telemetry;
mod provider;
mod tags;

use std::collections::BTreeMap;

use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing;
use navarch_proto::envoy::r#type::v3::Percent;

use super::class::ListenerClass;
use super::istio_version;
use super::telemetry::TracingOf;
use crate::policy::PolicyService;
use navarch_push::query::Query;
use navarch_push::view::View;
use tags::TracingSettings;

/// The tracing of the HTTP connection managers of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpTracingOf {
    /// Selects the Telemetry rules by mode: `SERVER` for `SidecarInbound`, `CLIENT` for the others.
    pub class: ListenerClass,
    /// The service of the listeners, at its waypoint.
    pub service: Option<PolicyService>,
}

/// The tracing of an HTTP connection manager.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpTracing {
    /// The Envoy message; `None` disables tracing.
    pub config: Option<Tracing>,
    /// Whether the sampling decision is packed into the request id.
    pub use_request_id: bool,
}

impl Query for HttpTracingOf {
    type Value = HttpTracing;

    fn compute(&self, view: &View<'_>) -> HttpTracing {
        let off = HttpTracing {
            config: None,
            use_request_id: true,
        };
        let Some(spec) = &*view.get(&TracingOf {
            class: self.class,
            service: self.service.clone(),
        }) else {
            return if view.mesh().config.enable_tracing {
                HttpTracing {
                    config: Some(by_proxy_config(view)),
                    ..off
                }
            } else {
                off
            };
        };

        let Some(provider) = spec.provider.as_ref().filter(|_| !spec.disabled) else {
            return off;
        };

        let Some(mut chosen) = provider::configure(view, provider) else {
            return off;
        };

        let settings = view.derived(&TracingSettings);
        let sampled = if chosen.samples_itself {
            // All spans must reach the sampler, which decides.
            100.0
        } else {
            spec.sampling.unwrap_or_else(|| settings.sampling())
        };

        set_sampling(&mut chosen.config, sampled);
        chosen.config.custom_tags = tags::all(view, spec.istio_tags, &settings, &spec.tags);
        chosen.config.no_context_propagation =
            spec.keeps_context && istio_version::at_least(view, 1, 30);
        if chosen.config.max_path_tag_length.is_none() && settings.max_path_length != 0 {
            chosen.config.max_path_tag_length = Some(settings.max_path_length);
        }

        HttpTracing {
            config: Some(chosen.config),
            use_request_id: spec.use_request_id,
        }
    }
}

/// Tracing by the proxy's own configuration; its tracer is part of its bootstrap.
fn by_proxy_config(view: &View<'_>) -> Tracing {
    let settings = view.derived(&TracingSettings);
    let mut tracing = Tracing {
        custom_tags: tags::all(view, settings.istio_tags, &settings, &BTreeMap::new()),
        max_path_tag_length: (settings.max_path_length != 0).then_some(settings.max_path_length),
        ..Tracing::default()
    };
    set_sampling(&mut tracing, settings.sampling());
    tracing
}

/// Sets the percentage of traced requests; requests that a client wants traced always are.
fn set_sampling(tracing: &mut Tracing, percent: f64) {
    tracing.client_sampling = Some(Percent { value: 100.0 });
    tracing.overall_sampling = Some(Percent { value: 100.0 });
    tracing.random_sampling = Some(Percent { value: percent });
}
