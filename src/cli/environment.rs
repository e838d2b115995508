//! Converts Istio's environment variables to settings, once at start. As in istiod, a variable with
//! an invalid value has its default, with a warning; `NAVARCH_STRICT_ENVIRONMENT` makes it an error.

mod ambient;
mod listeners;
mod reader;
mod variables;

use self::reader::Reader;
pub use self::reader::VariableError;
pub(super) use self::reader::{STRICT, duration, parsed};
pub(super) use self::variables::Variables;
use navarch_api::cluster_settings::ClusterSettings;
use navarch_api::names::{ClusterId, Namespace};
use navarch_api::rollout::{RolloutSettings, Stages, parse_pause};
use navarch_api::settings::Settings;
use navarch_base::compliance::CompliancePolicy;
use navarch_status::GatewayControllerSettings;

/// Reads all settings. `variable` returns the value of a variable. Unset and empty variables have
/// the default.
///
/// # Errors
/// With `NAVARCH_STRICT_ENVIRONMENT`, at the first variable with an invalid value.
pub fn settings(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, VariableError> {
    let read = Reader(&variable);
    let mut settings = Settings::default();
    read_registry(&read, &mut settings)?;
    ambient::read(&read, &mut settings)?;
    read_clusters(&read, &mut settings)?;
    listeners::read(&read, &mut settings)?;
    read_gateways(&read, &mut settings)?;
    read_gateway_api(&read, &mut settings)?;
    read_rollouts(&read, &mut settings.rollouts)?;
    Ok(settings)
}

/// Reads the settings of GatewayClasses and of the proxies of Gateways; the rest comes from the
/// settings and the revision.
///
/// # Errors
/// With `NAVARCH_STRICT_ENVIRONMENT`, at the first variable with an invalid value.
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
/// If the value is not a boolean, with `NAVARCH_STRICT_ENVIRONMENT`.
pub fn flag(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
    default: bool,
) -> Result<bool, VariableError> {
    let value = reader::boolean(variable, name)?;
    Ok(value.unwrap_or(default))
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
    api.waypoints = ambient && waypoints;
    api.east_west = ambient && east_west;
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
        assert_eq!(
            [on, usual].map(|settings| settings.hbone.sidecar_waypoints),
            [true, false]
        );
    }

    #[test]
    fn routes_are_fine_grained_for_all_for_large_tables_or_not_at_all() {
        for (form, min_hosts, expected) in [
            ("", "", (false, Some(1000))),
            ("auto", "50", (false, Some(50))),
            ("", "50", (false, Some(50))),
            ("auto", "0", (false, Some(1000))),
            ("sometimes", "", (false, Some(1000))),
            ("true", "50", (true, None)),
            ("1", "", (true, None)),
            ("false", "", (false, None)),
        ] {
            let read = settings(|name| match name {
                "NAVARCH_FINE_GRAINED_ROUTES" => Some(form.to_owned()),
                "NAVARCH_FINE_GRAINED_ROUTES_MIN_HOSTS" => Some(min_hosts.to_owned()),
                _ => None,
            })
            .unwrap();
            assert_eq!(
                (read.fine_grained_routes, read.fine_grained_routes_min_hosts),
                expected,
                "{form:?}, {min_hosts:?}"
            );
        }
    }

    #[test]
    fn an_invalid_value_is_the_default_unless_that_is_forbidden() {
        let invalid = [
            ("ISTIO_DUAL_STACK", "yes"),
            ("PILOT_DNS_CARES_UDP_MAX_QUERIES", "many"),
            ("PILOT_DNS_JITTER_DURATION", "soon"),
            ("NAVARCH_ROLLOUT", "all"),
        ];
        let read = |pairs: &[(&str, &str)]| {
            settings(|name| {
                let pair = pairs.iter().find(|(set, _)| *set == name);
                pair.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(read(&invalid), Ok(Settings::default()));

        for pair in invalid {
            for strict in ["true", "1", "yes"] {
                let error = read(&[pair, ("NAVARCH_STRICT_ENVIRONMENT", strict)]).unwrap_err();
                assert_eq!((error.name.as_str(), error.value.as_str()), pair);
            }
            let lenient = ("NAVARCH_STRICT_ENVIRONMENT", "false");
            assert_eq!(read(&[pair, lenient]), Ok(Settings::default()));
        }

        let error = read(&[invalid[0], ("NAVARCH_STRICT_ENVIRONMENT", "true")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ISTIO_DUAL_STACK=\"yes\" is not a valid boolean (true or false)"
        );
    }
}
