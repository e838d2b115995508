//! Istio's environment variables for remote clusters.

use super::environment::{self, VariableError};
use crate::server::RemotesConfig;
use navarch_api::settings::Settings;
use navarch_source::{KubernetesScope, ReadKinds, RemoteKinds};

/// Reads the settings. `variable` returns the value of a variable; unset and empty variables have
/// the default. `scope` selects the objects of the cluster that configures the mesh, `given`
/// contains the settings of flags.
///
/// # Errors
/// At the first variable with an invalid value.
pub(super) fn config(
    variable: impl Fn(&str) -> Option<String> + Copy,
    settings: &Settings,
    scope: &KubernetesScope,
    given: RemotesConfig,
) -> Result<RemotesConfig, VariableError> {
    let text = |name: &str| variable(name).filter(|value| !value.is_empty());
    let timeout = match environment::duration(variable, "PILOT_REMOTE_CLUSTER_TIMEOUT")? {
        None => given.timeout,
        timeout => timeout.filter(|timeout| !timeout.is_zero()),
    };

    let insecure = text("PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS").unwrap_or_default();
    let kinds = RemoteKinds {
        secrets: settings.clusters.remote_credentials,
        workload_entries: settings.clusters.remote_workload_entries,
        gateways: settings.clusters.gateways_by_gateway_api,
    };

    Ok(RemotesConfig {
        directory: text("PILOT_MULTICLUSTER_KUBECONFIG_PATH").map(Into::into),
        local_secrets: environment::flag(variable, "LOCAL_CLUSTER_SECRET_WATCHER", false)?,
        external: environment::flag(variable, "EXTERNAL_ISTIOD", false)?,
        timeout,
        insecure: insecure
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        scope: KubernetesScope {
            kinds: ReadKinds::Remote(kinds),
            system_namespace: settings.system_namespace.clone(),
            ..scope.clone()
        },
        ..given
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_variable_has_its_effect_and_zero_is_no_time_out() {
        let read = |pairs: &[(&str, &str)]| {
            let pairs = pairs.to_vec();
            let value = |name: &str| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| (*value).to_owned())
            };
            config(
                value,
                &Settings::default(),
                &KubernetesScope::default(),
                RemotesConfig::default(),
            )
        };

        let unset = read(&[]).unwrap();
        assert_eq!(
            (unset.timeout, unset.external, unset.directory),
            (Some(Duration::from_secs(30)), false, None)
        );
        let set = read(&[
            ("PILOT_REMOTE_CLUSTER_TIMEOUT", "0s"),
            (
                "PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS",
                "exec, tokenFile",
            ),
            ("PILOT_MULTICLUSTER_KUBECONFIG_PATH", "/k"),
            ("LOCAL_CLUSTER_SECRET_WATCHER", "true"),
            ("EXTERNAL_ISTIOD", "true"),
        ])
        .unwrap();
        assert_eq!(
            (set.timeout, set.local_secrets, set.external),
            (None, true, true)
        );
        assert_eq!(
            set.insecure.iter().map(String::as_str).collect::<Vec<_>>(),
            ["exec", "tokenFile"]
        );

        let soon = ("PILOT_REMOTE_CLUSTER_TIMEOUT", "soon");
        assert_eq!(read(&[soon]).unwrap().timeout, unset.timeout);
        assert!(read(&[soon, ("NAVARCH_STRICT_ENVIRONMENT", "true")]).is_err());
    }
}
