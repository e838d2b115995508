//! Istio's environment variables for writing to the cluster.

use std::time::Duration;

use anyhow::Context;

use super::environment::{duration, flag};
use crate::server::WritingConfig;
use navarch_api::settings::Settings;
use navarch_status::{Range, RegistrationConfig};

/// Reads the settings. `variable` returns the value of a variable; unset and empty variables have
/// the default. `revision` is that of the flag, `settings` are the settings read before, `max_age`
/// is the maximum age of a connection.
///
/// # Errors
/// At the first variable with an invalid value.
pub(super) fn config(
    variable: impl Fn(&str) -> Option<String>,
    revision: Option<String>,
    settings: &Settings,
    max_age: Option<Duration>,
) -> anyhow::Result<WritingConfig> {
    let text = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut config = WritingConfig::default();
    if let Some(name) = text("POD_NAME") {
        config.identity = name;
    }

    config.revision = revision.or_else(|| text("REVISION")).unwrap_or_default();
    config.elects = flag(&variable, "ENABLE_LEADER_ELECTION", true)?;
    if let Some(name) = text("PILOT_CA_CERT_CONFIGMAP") {
        config.published.roots = name;
    }

    if let Some(name) = text("PILOT_CRL_CONFIGMAP") {
        config.published.revocations = name;
    }

    config.published.trust_bundle = flag(&variable, "ENABLE_CLUSTER_TRUST_BUNDLE_API", false)?;
    config.only = text("ISTIO_WATCH_NAMESPACE");
    let prefixes = [
        "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX",
        "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX",
    ];

    for (range, name) in config.ranges.iter_mut().zip(prefixes) {
        if let Some(value) = text(name) {
            *range =
                Range::parse(&value).with_context(|| format!("{name}={value:?} is not a CIDR"))?;
        }
    }

    let interval = |name: &str, usual: Duration| {
        let set = duration(&variable, name);
        set.map(|set| set.map_or(usual, |interval| interval.max(Duration::from_millis(1))))
    };

    let status = interval("PILOT_STATUS_UPDATE_INTERVAL", Duration::from_millis(500))?;
    let analysis = interval("PILOT_ANALYSIS_INTERVAL", Duration::from_secs(10))?;
    let is_on = |name: &str, default: bool| flag(&variable, name, default);
    config.distribution = is_on("PILOT_ENABLE_STATUS", false)?.then_some(status);
    config.ambient = is_on("AMBIENT_ENABLE_STATUS", true)?;
    config.analysis = is_on("PILOT_ENABLE_ANALYSIS", false)?.then_some(analysis);
    let taint = text("PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME")
        .unwrap_or_else(|| "cni.istio.io/not-ready".to_owned());
    config.untaints = is_on("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", false)?.then_some(taint);

    config.exports = is_on("ENABLE_MCS_AUTO_EXPORT", false)?;
    config.gateways =
        super::environment::gateway_controllers(&variable, settings, config.revision.clone())?;
    config.registration = RegistrationConfig {
        auto_registers: is_on("PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION", true)?,
        tells_health: is_on("PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS", true)?,
        validates_identity: is_on("ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY", true)?,
        grace: interval("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", Duration::from_secs(10))?,
        // As in istiod: by then all clients have reconnected.
        longest: max_age.map(|age| age * 3 / 2),
    };

    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> anyhow::Result<WritingConfig> {
        let variables: BTreeMap<_, _> = variables.iter().copied().collect();
        config(
            |name| variables.get(name).map(|value| (*value).to_owned()),
            None,
            &Settings::default(),
            None,
        )
    }

    #[test]
    fn switches_are_read_as_go_reads_booleans() {
        assert!(!read(&[("ENABLE_LEADER_ELECTION", "0")]).unwrap().elects);
        assert!(
            read(&[("PILOT_ENABLE_ANALYSIS", "1")])
                .unwrap()
                .analysis
                .is_some()
        );
        assert!(!read(&[("AMBIENT_ENABLE_STATUS", "f")]).unwrap().ambient);

        let maybe = ("PILOT_ENABLE_STATUS", "maybe");
        assert_eq!(read(&[maybe]).unwrap().distribution, None);
        let error = read(&[maybe, ("NAVARCH_STRICT_ENVIRONMENT", "true")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "PILOT_ENABLE_STATUS=\"maybe\" is not a valid boolean (true or false)"
        );
    }

    #[test]
    fn variables_are_obeyed_and_named_when_they_cannot_be_read() {
        let set = read(&[
            ("POD_NAME", "istiod-1"),
            ("ENABLE_LEADER_ELECTION", "false"),
            ("PILOT_ENABLE_ANALYSIS", "true"),
            ("PILOT_ANALYSIS_INTERVAL", "3s"),
            ("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "10.9.0.0/16"),
        ])
        .unwrap();
        assert_eq!(
            (set.identity.as_str(), set.elects, set.analysis),
            ("istiod-1", false, Some(Duration::from_secs(3)))
        );
        assert_ne!(set.ranges[0], Range::IPV4);
        assert_eq!(
            (set.ranges[1], set.published.roots.as_str()),
            (Range::IPV6, "istio-ca-root-cert")
        );

        let usual = read(&[]).unwrap();
        assert_eq!(
            (
                usual.analysis,
                usual.untaints,
                usual.published.revocations.as_str()
            ),
            (None, None, "istio-ca-crl")
        );

        let set = read(&[
            ("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "true"),
            ("PILOT_CRL_CONFIGMAP", "lists"),
        ])
        .unwrap();
        assert_eq!(
            (set.untaints.as_deref(), set.published.revocations.as_str()),
            (Some("cni.istio.io/not-ready"), "lists")
        );

        let error = read(&[("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", "x")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX"),
            "{error}"
        );
    }
}
