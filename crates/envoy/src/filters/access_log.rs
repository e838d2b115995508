//! Access logs: of requests, of connections, and of connections without a matching filter chain.
//!
//! Providers of mesh config determine the logs; without any, `accessLogFile` and
//! `enableEnvoyAccessLogService` do.

mod file;
pub(super) mod grpc;
mod open_telemetry;

use navarch_proto::any::pack;
use navarch_proto::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use navarch_proto::envoy::config::accesslog::v3::{
    AccessLog, AccessLogFilter, AndFilter, ComparisonFilter, ExtensionFilter, ResponseFlagFilter,
    StatusCodeFilter, comparison_filter, extension_filter,
};
use navarch_proto::envoy::config::core::v3::RuntimeUInt32;
use navarch_proto::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::TcpAccessLogOptions;

use super::class::ListenerClass;
use super::metrics_log::{self, MetricsLogsOf};
use super::provider;
use super::telemetry::{LoggingOf, LoggingProvider};
use crate::policy::PolicyService;
use navarch_api::mesh::ExtensionProvider;
use navarch_api::validation::check_cel;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The access logs of all listeners of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessLogsOf {
    /// Selects the Telemetry rules by mode: `SERVER` for `SidecarInbound`, `CLIENT` for the others.
    pub class: ListenerClass,
    /// The service of the listeners, at its waypoint.
    pub service: Option<PolicyService>,
}

impl AccessLogsOf {
    /// For listeners that are not for one service of a waypoint.
    #[must_use]
    pub fn of_class(class: ListenerClass) -> Self {
        Self {
            class,
            service: None,
        }
    }
}

/// Access logs by place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessLogs {
    /// For HTTP connection managers.
    pub http: Vec<AccessLog>,
    /// For TCP proxies.
    pub tcp: Vec<AccessLog>,
    /// When TCP proxies write logs, if not only at the end.
    pub tcp_options: Option<TcpAccessLogOptions>,
    /// For listeners: connections without a matching filter chain.
    pub listener: Vec<AccessLog>,
    /// For the start of HBONE tunnels: failed connections, whose reason would be lost.
    pub tunnel_begin: Vec<AccessLog>,
    /// For the end of HBONE tunnels: rejected requests.
    pub tunnel_end: Vec<AccessLog>,
}

impl AccessLogs {
    /// Adds these logs to a TCP proxy.
    pub fn put(&self, proxy: &mut TcpProxy) {
        proxy.access_log.clone_from(&self.tcp);
        proxy.access_log_options.clone_from(&self.tcp_options);
    }
}

impl Query for AccessLogsOf {
    type Value = AccessLogs;

    fn compute(&self, view: &View<'_>) -> AccessLogs {
        let mut logs = match view
            .get(&LoggingOf {
                class: self.class,
                service: self.service.clone(),
            })
            .as_ref()
        {
            Some(providers) => {
                from_providers(view, providers).unwrap_or_else(|| from_mesh_config(view))
            }
            None => from_mesh_config(view),
        };

        if view.mesh().config.disable_envoy_listener_log {
            logs.listener.clear();
        }

        let metrics = view.get(&MetricsLogsOf {
            class: self.class,
            service: self.service.clone(),
        });
        if metrics.tcp_options.is_some() {
            for log in &mut logs.tcp {
                let filters = log
                    .filter
                    .take()
                    .into_iter()
                    .chain([metrics_log::at_end()])
                    .collect();
                *log = filtered(std::mem::take(log), filters);
            }
            logs.tcp_options.clone_from(&metrics.tcp_options);
        }

        logs.http.extend(metrics.http.iter().cloned());
        logs.tcp.extend(metrics.tcp.iter().cloned());
        logs
    }
}

/// The log of mesh config without providers.
fn from_mesh_config(view: &View<'_>) -> AccessLogs {
    let mesh = &view.mesh().config;
    let mut logs = AccessLogs::default();

    if !mesh.access_log_file.is_empty() {
        let log = file::of_mesh(view, &mesh.access_log_file, mesh);
        logs.http.push(log.clone());
        logs.tcp.push(log.clone());
        logs.listener.push(filtered(log.clone(), vec![unmatched()]));
        logs.tunnel_begin
            .push(filtered(log.clone(), vec![unconnected()]));
        logs.tunnel_end.push(filtered(log, vec![failed()]));
    }

    if mesh.enable_envoy_access_log_service {
        logs.http.push(grpc::http_service());
        logs.tcp.push(grpc::tcp_service("tcp_envoy_accesslog"));
        logs.listener.push(filtered(
            grpc::tcp_service("listener_envoy_accesslog"),
            vec![unmatched()],
        ));
    }

    logs
}

/// The logs of providers, ordered by name; `None` if no provider exists, not even a disabled one.
fn from_providers(view: &View<'_>, providers: &[LoggingProvider]) -> Option<AccessLogs> {
    let known = &view.mesh().config.extension_providers;
    let mut logs: Option<AccessLogs> = None;

    for chosen in providers {
        let Some(log) =
            provider::find(known, &chosen.name).and_then(|found| of_provider(view, found))
        else {
            continue;
        };

        let logs = logs.get_or_insert_default();
        if chosen.disabled {
            continue;
        }

        let expression = chosen.expression.as_deref().filter(|text| match check_cel(text) {
            Ok(()) => true,
            Err(fault) => {
                let name = &chosen.name;
                view.remark(format!(
                    "Telemetry: the filter of provider {name} is ignored, since it is not valid CEL: {fault}"
                ));
                false
            }
        });

        let expression = expression.map(by_expression);
        let of_requests = filtered(log.clone(), expression.iter().cloned().collect());
        logs.http.push(of_requests.clone());
        logs.tcp.push(of_requests);
        let with = |filter: AccessLogFilter| {
            filtered(
                log.clone(),
                [filter].into_iter().chain(expression.clone()).collect(),
            )
        };

        logs.listener.push(with(unmatched()));
        logs.tunnel_begin.push(with(unconnected()));
        logs.tunnel_end.push(with(failed()));
    }

    logs
}

/// The log of one provider; `None` if it logs nothing or its service is unknown.
fn of_provider(view: &View<'_>, provider: &ExtensionProvider) -> Option<AccessLog> {
    if let Some(file) = &provider.envoy_file_access_log {
        // The built-in provider uses mesh config, unless it has its own settings.
        let is_built_in =
            provider.name == "envoy" && file.log_format.is_none() && !file.omit_empty_values;
        return Some(if is_built_in {
            file::of_mesh(view, &file.path, &view.mesh().config)
        } else {
            file::of_provider(view, &provider.name, file)
        });
    }

    if let Some(http) = &provider.envoy_http_als {
        return Some(grpc::http_provider(
            http,
            &provider::cluster(view, "envoyHTTPAls", &http.service, http.port)?,
        ));
    }

    if let Some(tcp) = &provider.envoy_tcp_als {
        return Some(grpc::tcp_provider(
            tcp,
            &provider::cluster(view, "envoyTCPAls", &tcp.service, tcp.port)?,
        ));
    }

    let collector = provider.envoy_otel_als.as_ref()?;
    let cluster = provider::cluster(view, "envoyOtelAls", &collector.service, collector.port)?;
    Some(open_telemetry::of_provider(
        view,
        &provider.name,
        collector,
        &cluster,
    ))
}

/// The log with filters, all of which must match.
fn filtered(log: AccessLog, mut filters: Vec<AccessLogFilter>) -> AccessLog {
    let filter = match filters.len() {
        0 | 1 => filters.pop(),
        _ => Some(AccessLogFilter {
            filter_specifier: Some(FilterSpecifier::AndFilter(AndFilter { filters })),
        }),
    };
    AccessLog { filter, ..log }
}

/// Selects connections without a matching filter chain, which logs of filters cannot contain.
fn unmatched() -> AccessLogFilter {
    flagged("NR")
}

/// Selects failed upstream connections.
fn unconnected() -> AccessLogFilter {
    flagged("UF")
}

/// Selects rejected or failed requests.
fn failed() -> AccessLogFilter {
    // Envoy requires a runtime key; this one is never set.
    let value = RuntimeUInt32 {
        default_value: 400,
        runtime_key: "istio.io/unset".to_owned(),
    };
    let comparison = ComparisonFilter {
        op: comparison_filter::Op::Ge.into(),
        value: Some(value),
    };
    let filter = StatusCodeFilter {
        comparison: Some(comparison),
    };
    AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::StatusCodeFilter(filter)),
    }
}

/// Selects entries with a response flag.
fn flagged(flag: &str) -> AccessLogFilter {
    let flags = ResponseFlagFilter {
        flags: vec![flag.to_owned()],
    };
    AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(flags)),
    }
}

/// Selects entries by a CEL expression.
fn by_expression(expression: &str) -> AccessLogFilter {
    let config = ExpressionFilter {
        expression: expression.to_owned(),
        ..ExpressionFilter::default()
    };
    let filter = ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(extension_filter::ConfigType::TypedConfig(pack(&config))),
    };
    AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::ExtensionFilter(filter)),
    }
}
