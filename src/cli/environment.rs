//! Converts Istio's environment variables to settings, once at start.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use parking_lot::Mutex;

use super::istiod_variables::{ISTIOD, REMOVED_VARIABLES};
use navarch_api::cluster_settings::ClusterSettings;
use navarch_api::duration::Duration;
use navarch_api::go_text::parse_bool;
use navarch_api::names::{ClusterId, Namespace};
use navarch_api::rollout::{RolloutSettings, Stages, parse_pause};
use navarch_api::settings::{CompliancePolicy, KeyFetching, Settings};
use navarch_status::GatewayControllerSettings;

/// A variable with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is not a valid {expected}")]
pub struct VariableError {
    /// The environment variable, such as `PILOT_ENABLE_AMBIENT`.
    pub name: &'static str,
    /// The invalid value.
    pub value: String,
    /// The expected type.
    pub expected: &'static str,
}

/// Reads all settings. `variable` returns the value of a variable. Unset and empty variables have
/// the default.
///
/// # Errors
/// At the first variable with an invalid value.
pub fn settings(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, VariableError> {
    let read = Reader(&variable);
    let mut settings = Settings::default();
    read_registry(&read, &mut settings)?;
    read_ambient(&read, &mut settings)?;
    read_clusters(&read, &mut settings)?;
    read_listeners(&read, &mut settings)?;
    read_gateways(&read, &mut settings)?;
    read_gateway_api(&read, &mut settings)?;
    read_rollouts(&read, &mut settings.rollouts)?;
    Ok(settings)
}

/// Reads the settings of GatewayClasses and of the proxies of Gateways; the rest comes from the
/// settings and the revision.
///
/// # Errors
/// At the first variable with an invalid value.
pub fn gateway_controllers(
    variable: impl Fn(&str) -> Option<String>,
    settings: &Settings,
    revision: String,
) -> Result<GatewayControllerSettings, VariableError> {
    let read = Reader(&variable);
    let mut controllers = GatewayControllerSettings {
        api: settings.gateway_api.clone(),
        quic: settings.quic_listeners,
        cluster: settings.cluster_id.to_string(),
        namespace: settings.system_namespace.to_string(),
        revision,
        ..GatewayControllerSettings::default()
    };

    read.flag(
        "PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER",
        &mut controllers.classes,
    )?;
    read.flag(
        "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER",
        &mut controllers.deploys,
    )?;

    read.flag(
        "PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS",
        &mut controllers.copies_metadata,
    )?;

    Ok(controllers)
}

/// The value of a variable of the process.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the environment"
)]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A boolean variable. Unset and empty variables have the default.
///
/// # Errors
/// If the value is not a boolean.
pub fn flag(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
    default: bool,
) -> anyhow::Result<bool> {
    let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
        return Ok(default);
    };
    parse_bool(&value).with_context(|| format!("{name}={value:?} is neither true nor false"))
}

/// The variables of a process, and the names that were read.
#[derive(Debug, Default)]
pub(super) struct Variables {
    values: BTreeMap<String, String>,
    /// The names that were read, whether set or not.
    read_names: Mutex<BTreeSet<String>>,
}

impl Variables {
    /// Variables with these values.
    pub(super) fn new(values: impl IntoIterator<Item = (String, String)>) -> Self {
        Self {
            values: values.into_iter().collect(),
            read_names: Mutex::default(),
        }
    }

    /// The value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.read_names.lock().insert(name.to_owned());
        self.values.get(name).cloned()
    }

    /// All values, for templates and headers that may use any variable. This does not count as
    /// reading them.
    pub(super) fn all(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// The names that were read, whether set or not.
    pub(super) fn read_names(&self) -> BTreeSet<String> {
        self.read_names.lock().clone()
    }

    /// The variables whose values may be shown to operators: those that were read, without those
    /// that can hold a credential. All others of the process are none of Navarch's business.
    pub(super) fn shown(&self) -> BTreeSet<String> {
        let mut names = self.read_names();
        names.retain(|name| !may_hold_credential(name));
        names
    }

    /// istiod's variables that are set but were not read, so they have no effect. Variables whose
    /// value matches Navarch's behaviour are omitted.
    pub(super) fn ignored(&self) -> Vec<&'static str> {
        let read_names = self.read_names.lock();
        let is_ignored = |(name, usual): &&(&'static str, Option<&str>)| {
            let value = self
                .values
                .get(*name)
                .map(String::as_str)
                .filter(|value| !value.is_empty());
            value.is_some_and(|value| !read_names.contains(*name) && *usual != Some(value))
        };
        ISTIOD
            .iter()
            .chain(REMOVED_VARIABLES)
            .filter(is_ignored)
            .map(|(name, _)| *name)
            .collect()
    }
}

/// Whether the value of a variable that Navarch reads can hold a credential: headers, addresses
/// with a user in them, and names that say so.
fn may_hold_credential(name: &str) -> bool {
    const WORDS: [&str; 5] = ["SECRET", "PASSWORD", "CREDENTIAL", "PRIVATE_KEY", "HEADERS"];
    const SUFFIXES: [&str; 3] = ["_URL", "_ENDPOINT", "_TOKEN"];
    WORDS.iter().any(|word| name.contains(word))
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Reads variables by type.
struct Reader<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Reader<'_> {
    /// The value, if it is set and not empty.
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// Sets the field, if the variable is set.
    fn set<T>(
        &self,
        name: &'static str,
        field: &mut T,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<(), VariableError> {
        if let Some(value) = self.text(name) {
            *field = parse(&value).ok_or(VariableError {
                name,
                value,
                expected,
            })?;
        }
        Ok(())
    }

    /// Reads a boolean.
    fn flag(&self, name: &'static str, field: &mut bool) -> Result<(), VariableError> {
        self.set(name, field, "boolean (true or false)", parse_bool)
    }

    /// Reads a non-negative number.
    fn number(&self, name: &'static str, field: &mut u32) -> Result<(), VariableError> {
        self.set(name, field, "whole number", |text| text.parse().ok())
    }

    /// Reads a duration.
    fn duration(&self, name: &'static str, field: &mut Duration) -> Result<(), VariableError> {
        self.set(name, field, "duration such as 15s", |text| {
            Duration::parse(text).ok()
        })
    }

    /// Reads a text.
    fn words(&self, name: &str, field: &mut String) {
        if let Some(value) = self.text(name) {
            *field = value;
        }
    }
}

/// Settings of services, endpoints and their addresses.
fn read_registry(read: &Reader<'_>, settings: &mut Settings) -> Result<(), VariableError> {
    if let Some(id) = read.text("CLUSTER_ID") {
        settings.cluster_id = ClusterId::new(id);
    }

    if let Some(namespace) = read.text("POD_NAMESPACE") {
        settings.system_namespace = Namespace::new(namespace);
    }

    if let Some(namespace) = read.text("K8S_INGRESS_NS") {
        settings.ingress_namespace = Namespace::new(namespace);
    }

    read.flag("ISTIO_DUAL_STACK", &mut settings.dual_stack)?;
    read.flag(
        "PILOT_ENABLE_IP_AUTOALLOCATE",
        &mut settings.ip_autoallocate,
    )?;
    read.flag(
        "ENABLE_PROXY_FIND_POD_BY_IP",
        &mut settings.find_pods_by_address,
    )?;

    read.flag(
        "PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES",
        &mut settings.services_select_workload_entries,
    )?;
    read.flag(
        "PILOT_ENABLE_SERVICEENTRY_SELECT_PODS",
        &mut settings.service_entries_select_pods,
    )?;

    read.flag(
        "PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS",
        &mut settings.workload_entry_health_checks,
    )?;
    read.flag(
        "PILOT_SEND_UNHEALTHY_ENDPOINTS",
        &mut settings.send_unhealthy_endpoints,
    )?;

    read.flag(
        "PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS",
        &mut settings.auto_send_unhealthy_endpoints,
    )?;
    read.words(
        "PILOT_PERSISTENT_SESSION_LABEL",
        &mut settings.persistent_session_label,
    );

    read.words(
        "PILOT_PERSISTENT_SESSION_HEADER_LABEL",
        &mut settings.persistent_session_header_label,
    );
    read.words("PILOT_DRAINING_LABEL", &mut settings.draining_label);
    read.flag(
        "ENABLE_MULTICLUSTER_HEADLESS",
        &mut settings.multicluster_headless,
    )?;

    read_clusters_of_mesh(read, &mut settings.clusters)?;
    read.flag(
        "DISABLE_SHADOW_HOST_SUFFIX",
        &mut settings.disable_shadow_host_suffix,
    )?;

    read.flag(
        "PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN",
        &mut settings.absolute_fqdn_domains,
    )
}

/// Settings of staged rollouts.
fn read_rollouts(read: &Reader<'_>, rollouts: &mut RolloutSettings) -> Result<(), VariableError> {
    let stages = |text: &str| Stages::parse(text).ok().map(Some);
    read.set(
        "NAVARCH_ROLLOUT",
        &mut rollouts.stages,
        "list of increasing percentages such as 5%,25%,100%",
        stages,
    )?;
    let pause = "duration such as 30s, at most 24h";
    read.set(
        "NAVARCH_ROLLOUT_PAUSE",
        &mut rollouts.pause,
        pause,
        |text| parse_pause(text).ok(),
    )
}

/// Settings of ambient mode.
fn read_ambient(read: &Reader<'_>, settings: &mut Settings) -> Result<(), VariableError> {
    read.flag("PILOT_ENABLE_AMBIENT", &mut settings.ambient)?;
    read.flag(
        "ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES",
        &mut settings.hbone.layered_authorization,
    )?;
    let mut ambient = Settings {
        sidecar_listening_hbone: true,
        ..settings.clone()
    };

    read.flag(
        "PILOT_AUTO_ALLOW_WAYPOINT_POLICY",
        &mut ambient.auto_allow_waypoints,
    )?;
    read.flag(
        "AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY",
        &mut ambient.ambient_dry_run,
    )?;

    read.flag(
        "PILOT_ENABLE_SIDECAR_LISTENING_HBONE",
        &mut ambient.sidecar_listening_hbone,
    )?;
    let hbone = &mut ambient.hbone;
    (
        hbone.sends,
        hbone.ingress_waypoints,
        hbone.waypoints_leave_network,
    ) = (true, true, true);

    read.flag("PILOT_ENABLE_SENDING_HBONE", &mut hbone.sends)?;
    read.flag("PILOT_PREFER_SENDING_HBONE", &mut hbone.is_preferred)?;
    read.flag(
        "ENABLE_INGRESS_WAYPOINT_ROUTING",
        &mut hbone.ingress_waypoints,
    )?;
    read.flag("AMBIENT_ENABLE_BAGGAGE", &mut hbone.baggage)?;
    read.flag(
        "AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT",
        &mut hbone.waypoints_leave_network,
    )?;

    read.flag(
        "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS",
        &mut hbone.gateways_leave_network,
    )?;
    read.number(
        "PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE",
        &mut hbone.stream_window,
    )?;

    read.number(
        "PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE",
        &mut hbone.connection_window,
    )?;

    if settings.ambient {
        // Without ambient mode istiod enables none of these, whatever their value.
        *settings = ambient;
    }

    Ok(())
}

/// Settings of a mesh with several clusters.
fn read_clusters_of_mesh(
    read: &Reader<'_>,
    clusters: &mut ClusterSettings,
) -> Result<(), VariableError> {
    let mut exports = false;
    let mut hosts = false;
    let mut cluster_local = false;
    read.flag("ENABLE_MCS_SERVICE_DISCOVERY", &mut exports)?;
    read.flag("ENABLE_MCS_HOST", &mut hosts)?;
    read.flag("ENABLE_MCS_CLUSTER_LOCAL", &mut cluster_local)?;
    clusters.mcs = ClusterSettings::mcs_mode(exports, hosts, cluster_local);
    read.flag(
        "PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY",
        &mut clusters.remote_workload_entries,
    )?;

    read.flag(
        "PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER",
        &mut clusters.remote_credentials,
    )?;
    read.flag(
        "PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API",
        &mut clusters.gateways_by_gateway_api,
    )?;

    read.words("REVISION", &mut clusters.revision);
    Ok(())
}

/// Settings of Envoy's clusters and endpoints.
fn read_clusters(read: &Reader<'_>, settings: &mut Settings) -> Result<(), VariableError> {
    read.flag(
        "ENABLE_ENHANCED_DESTINATIONRULE_MERGE",
        &mut settings.enhanced_destination_rule_merge,
    )?;
    read.flag(
        "PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES",
        &mut settings.eds_for_headless,
    )?;

    read.flag(
        "PILOT_UNIFIED_SIDECAR_SCOPE",
        &mut settings.unified_sidecar_scope,
    )?;
    read.flag(
        "PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE",
        &mut settings.sidecar_best_namespace,
    )?;

    // As in istiod, an unknown policy is no policy.
    read.set(
        "COMPLIANCE_POLICY",
        &mut settings.compliance,
        "policy",
        |text| Some(CompliancePolicy::parse(text).unwrap_or_default()),
    )?;

    read.flag(
        "ENABLE_LOCALITY_WEIGHTED_LB_CONFIG",
        &mut settings.locality_weighted_lb,
    )?;
    read.flag(
        "PILOT_ENABLE_TELEMETRY_LABEL",
        &mut settings.telemetry_label,
    )?;

    read.flag(
        "PILOT_ENDPOINT_TELEMETRY_LABEL",
        &mut settings.endpoint_telemetry_label,
    )?;
    read.number(
        "PILOT_DNS_CARES_UDP_MAX_QUERIES",
        &mut settings.dns_udp_max_queries,
    )?;

    read.duration("PILOT_DNS_JITTER_DURATION", &mut settings.dns_jitter)?;
    read.flag(
        "LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES",
        &mut settings.label_external_canonical_services,
    )?;
    read.flag(
        "PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES",
        &mut settings.prefer_rule_tls_for_external,
    )?;

    read.flag(
        "DISABLE_TRACK_REMAINING_CB_METRICS",
        &mut settings.disable_track_remaining,
    )?;

    read.number(
        "PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS",
        &mut settings.dynamic_dns_max_hosts,
    )
}

/// Settings of listeners and their filters.
fn read_listeners(read: &Reader<'_>, settings: &mut Settings) -> Result<(), VariableError> {
    read.flag("PILOT_ENVOY_FILTER_STATS", &mut settings.envoy_filter_stats)?;
    read.flag(
        "PILOT_ENABLE_METADATA_EXCHANGE",
        &mut settings.metadata_exchange,
    )?;
    read.flag(
        "PILOT_DISABLE_MX_ALPN",
        &mut settings.disable_metadata_exchange_alpn,
    )?;

    read.words(
        "PILOT_MX_ADDITIONAL_LABELS",
        &mut settings.metadata_exchange_labels,
    );
    read.flag("PILOT_ENABLE_ALPN_FILTER", &mut settings.alpn_filter)?;
    read.flag(
        "PILOT_ENABLE_PERSISTENT_SESSION_FILTER",
        &mut settings.persistent_session_filter,
    )?;

    read.flag("PILOT_ENABLE_MONGO_FILTER", &mut settings.mongo_filter)?;
    read.flag("PILOT_ENABLE_REDIS_FILTER", &mut settings.redis_filter)?;
    read.flag("PILOT_ENABLE_MYSQL_FILTER", &mut settings.mysql_filter)?;
    read.flag("PILOT_HTTP10", &mut settings.http10)?;
    read.flag(
        "PILOT_SIDECAR_USE_REMOTE_ADDRESS",
        &mut settings.sidecar_use_remote_address,
    )?;

    read.flag(
        "ENABLE_100_CONTINUE_HEADERS",
        &mut settings.proxy_100_continue,
    )?;
    read.flag(
        "ENABLE_HCM_INTERNAL_NETWORKS",
        &mut settings.hcm_internal_networks,
    )?;

    read.number(
        "MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP",
        &mut settings.max_connections_per_socket_event,
    )?;
    read.duration(
        "PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT",
        &mut settings.transport_socket_connect_timeout,
    )?;

    read.flag(
        "PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER",
        &mut settings.headless_filter_chain_listener,
    )?;
    read.flag(
        "ENABLE_TLS_ON_SIDECAR_INGRESS",
        &mut settings.tls_on_sidecar_ingress,
    )?;

    read.flag(
        "PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS",
        &mut settings.multiple_custom_authorization_providers,
    )?;
    read.flag(
        "ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY",
        &mut settings.selector_based_gateway_policy,
    )?;

    // As in istiod, an unknown value is the default.
    read.set(
        "PILOT_JWT_ENABLE_REMOTE_JWKS",
        &mut settings.key_fetching,
        "JWKS fetch mode",
        |text| {
            Some(match text {
                "hybrid" | "true" => KeyFetching::Hybrid,
                "envoy" => KeyFetching::Proxy,
                _ => KeyFetching::ControlPlane,
            })
        },
    )?;

    read.flag(
        "NAVARCH_FINE_GRAINED_ROUTES",
        &mut settings.fine_grained_routes,
    )?;
    read.flag(
        "PILOT_SKIP_VALIDATE_TRUST_DOMAIN",
        &mut settings.skip_validate_trust_domain,
    )?;

    read.flag(
        "PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE",
        &mut settings.merge_sidecar_ingress,
    )?;
    read.flag(
        "ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS",
        &mut settings.ipv4_for_ipv6_only,
    )?;

    // As in istiod, an invalid percentage is 1.
    read.set(
        "PILOT_TRACE_SAMPLING",
        &mut settings.trace_sampling,
        "percentage",
        |text| {
            text.parse().ok().map(|percent| {
                if (0.0..=100.0).contains(&percent) {
                    percent
                } else {
                    1.0
                }
            })
        },
    )
}

fn read_gateways(read: &Reader<'_>, settings: &mut Settings) -> Result<(), VariableError> {
    read.flag("PILOT_ENABLE_QUIC_LISTENERS", &mut settings.quic_listeners)?;
    read.flag(
        "PILOT_SCOPE_GATEWAY_TO_NAMESPACE",
        &mut settings.scope_gateway_to_namespace,
    )?;
    read.flag(
        "PILOT_FILTER_GATEWAY_CLUSTER_CONFIG",
        &mut settings.filter_gateway_clusters,
    )?;
    read.flag(
        "PILOT_ENABLE_STRICT_GATEWAY_MERGING",
        &mut settings.strict_gateway_merging,
    )?;
    read.flag(
        "PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION",
        &mut settings.route_collapse,
    )
}

fn read_gateway_api(read: &Reader<'_>, settings: &mut Settings) -> Result<(), VariableError> {
    let ambient = settings.ambient;
    let api = &mut settings.gateway_api;
    read.flag("PILOT_ENABLE_GATEWAY_API", &mut api.enabled)?;
    read.flag("PILOT_ENABLE_GATEWAY_API_STATUS", &mut api.status)?;
    read.flag("PILOT_ENABLE_ALPHA_GATEWAY_API", &mut api.alpha)?;
    read.flag("ENABLE_GATEWAY_API_INFERENCE_EXTENSION", &mut api.inference)?;
    read.flag(
        "ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT",
        &mut api.manual_deployment,
    )?;

    read.flag(
        "PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API",
        &mut api.remote_class,
    )?;
    let mut waypoints = true;
    let mut east_west = false;
    read.flag("PILOT_ENABLE_AMBIENT_WAYPOINTS", &mut waypoints)?;
    read.flag("AMBIENT_ENABLE_MULTI_NETWORK", &mut east_west)?;

    // Without ambient mode istiod enables neither, whatever their value.
    (api.waypoints, api.east_west) = (ambient && waypoints, ambient && east_west);
    read.flag("ENABLE_MCS_HOST", &mut api.mcs_host)?;
    read.words(
        "PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME",
        &mut api.default_class,
    );
    read.words("PILOT_GATEWAY_API_CONTROLLER_NAME", &mut api.controller);

    read.words("MCS_API_GROUP", &mut api.mcs_group);
    read.words("MCS_API_VERSION", &mut api.mcs_version);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_and_empty_variables_are_the_defaults() {
        assert_eq!(settings(|_| None), Ok(Settings::default()));
        assert_eq!(settings(|_| Some(String::new())), Ok(Settings::default()));
    }

    #[test]
    fn without_ambient_mode_all_its_settings_are_off() {
        let all = |name: &str| match name {
            "ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES" => None,
            name if name.contains("WINDOW_SIZE") => Some("7".to_owned()),
            name if ["AMBIENT", "HBONE", "WAYPOINT"]
                .iter()
                .any(|word| name.contains(word)) =>
            {
                Some("true".to_owned())
            }
            _ => None,
        };

        assert_eq!(
            settings(|name| all(name).filter(|_| name != "PILOT_ENABLE_AMBIENT")),
            Ok(Settings::default())
        );
        let on = settings(all).unwrap();
        assert!(
            on.ambient && on.gateway_api.waypoints && on.gateway_api.east_west && on.hbone.sends
        );

        let usual =
            settings(|name| (name == "PILOT_ENABLE_AMBIENT").then(|| "true".to_owned())).unwrap();
        assert_eq!(
            (usual.gateway_api.waypoints, usual.gateway_api.east_west),
            (true, false)
        );
    }

    #[test]
    fn a_value_that_cannot_be_is_named() {
        let error =
            settings(|name| (name == "ISTIO_DUAL_STACK").then(|| "yes".to_owned())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ISTIO_DUAL_STACK=\"yes\" is not a valid boolean (true or false)"
        );
    }
}
