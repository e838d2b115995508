//! Settings that are environment variables only.

use std::path::PathBuf;
use std::time::Duration;

use super::flag_values::duration;
use super::warn_ignored;
use crate::admin::DebugSwitches;
use crate::cli::environment::{self, VariableError, Variables};
use navarch_api::cluster_settings::McsMode;
use navarch_api::settings::{Environment, Settings};
use navarch_net::destination::AddressPolicy;
use navarch_push::worker::Debounce;
use navarch_source::{KeyConfig, KubernetesScope, ReadKinds};

/// The settings from the environment. The API of multi-cluster Services is set for the whole
/// process, as in istiod.
pub(super) fn settings(variables: &Variables) -> anyhow::Result<Settings> {
    let mut settings = environment::settings(|name: &str| variables.get(name))?;
    settings.environment = Environment::new(variables.all().clone());
    navarch_api::mcs::set_api(
        &settings.gateway_api.mcs_group,
        &settings.gateway_api.mcs_version,
    );
    Ok(settings)
}

/// The objects of the Kubernetes API to read.
pub(in crate::cli) fn scope(
    variables: &Variables,
    revision: Option<String>,
    settings: &Settings,
) -> KubernetesScope {
    let text = |name: &str| text(variables, name);
    KubernetesScope {
        kinds: ReadKinds::All,
        namespace: navarch_api::names::Namespace::new(
            text("ISTIO_WATCH_NAMESPACE").unwrap_or_default(),
        ),
        revision: revision.or_else(|| text("REVISION")).unwrap_or_default(),
        system_namespace: navarch_api::names::Namespace::default(),
        ignored: text("PILOT_IGNORE_RESOURCES").unwrap_or_default(),
        included: text("PILOT_INCLUDE_RESOURCES").unwrap_or_default(),
        mcs: settings.clusters.mcs != McsMode::Off,
    }
}

/// `PILOT_JWT_PUB_KEY_REFRESH_INTERVAL` (20 min), `BLOCKED_CIDRS_IN_JWKS_URIS`, and
/// `NAVARCH_JWKS_ALLOW_LOOPBACK`, which allows policies to use servers on the control plane's own
/// machine.
pub(super) fn keys(variables: &Variables) -> anyhow::Result<KeyConfig> {
    let set = |name: &str| text(variables, name);
    let name = "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL";
    let refresh = environment::parsed(set, name, "duration above zero", |text| {
        duration(text).ok().filter(|interval| !interval.is_zero())
    })?;

    let ranges = set("BLOCKED_CIDRS_IN_JWKS_URIS").unwrap_or_default();
    let blocked = navarch_base::cidr::Cidr::parse_list(&ranges).map_err(|part| {
        anyhow::anyhow!("BLOCKED_CIDRS_IN_JWKS_URIS={ranges:?}: {part:?} is not a CIDR")
    })?;
    let allow_loopback = environment::flag(set, "NAVARCH_JWKS_ALLOW_LOOPBACK", false)?;

    Ok(KeyConfig {
        refresh: refresh.unwrap_or(Duration::from_mins(20)),
        addresses: AddressPolicy {
            allow_loopback,
            blocked,
        },
    })
}

/// `PILOT_DEBOUNCE_AFTER` and `PILOT_DEBOUNCE_MAX`; if unset, changes are pushed at once.
pub(super) fn debounce(variables: &Variables) -> Result<Debounce, VariableError> {
    let read = |name: &str| environment::duration(|name: &str| variables.get(name), name);
    let after = read("PILOT_DEBOUNCE_AFTER")?.unwrap_or_default();
    let max = read("PILOT_DEBOUNCE_MAX")?.unwrap_or(Duration::from_secs(10));
    Ok(Debounce { after, max })
}

/// The enabled debug pages.
pub(super) fn debug(variables: &Variables, profiles: bool) -> Result<DebugSwitches, VariableError> {
    let flag = |name: &str, default: bool| {
        environment::flag(|name: &str| variables.get(name), name, default)
    };
    let on_http = flag("ENABLE_DEBUG_ON_HTTP", true)?;
    let harmful = flag("UNSAFE_ENABLE_ADMIN_ENDPOINTS", false)?;
    Ok(DebugSwitches {
        on_http,
        harmful,
        profiles,
    })
}

/// The export of change traces, if enabled. Then, ignored variables of OpenTelemetry are logged.
pub(super) fn traces(variables: &Variables) -> Option<navarch_otlp::Config> {
    let navarch_otlp::Reading { config, warnings } = navarch_otlp::read(|name| variables.get(name));
    if config.is_some() || !warnings.is_empty() {
        let is_unread = |name: &&String| {
            name.starts_with("OTEL_") && !navarch_otlp::NAMES.contains(&name.as_str())
        };
        let unread: Vec<String> = variables.all().keys().filter(is_unread).cloned().collect();
        warn_ignored(
            "environment variables of OpenTelemetry that have no effect",
            &unread,
        );
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    config
}

/// `KUBECONFIG`: the first of its files that is not empty. Istio's chart always sets it, usually to
/// a missing file.
pub(super) fn kubeconfig(variables: &Variables) -> Option<PathBuf> {
    let names = text(variables, "KUBECONFIG")?;
    let says_anything =
        |path: &PathBuf| std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0);
    let mut files = names
        .split(':')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .filter(says_anything);
    let first = files.next();
    warn_ignored(
        "KUBECONFIG: files that are ignored, because only the first one is read",
        &shown(files),
    );
    first
}

/// Paths as strings.
fn shown(paths: impl Iterator<Item = PathBuf>) -> Vec<String> {
    paths.map(|path| path.display().to_string()).collect()
}

/// The value of a variable, if it is set and not empty.
pub(super) fn text(variables: &Variables, name: &str) -> Option<String> {
    variables.get(name).filter(|value| !value.is_empty())
}
