//! What the agent logs at its start, in pilot-agent's form: its flags, and the effective config.
//!
//! One event of the log is one line, so each line of the config has the same beginning:
//! `sed -n 's/.*Effective config: //p'` returns the YAML.

use navarch_api::credential_names::{CredentialLikelihood, credential_likelihood};
use navarch_api::mesh::ProxyConfig;
use navarch_api::proto_json::to_proto_json;
use navarch_api::yaml;
use navarch_base::go_text::quoted;

/// What stands for a value that may be secret.
const REDACTED: &str = "[redacted]";

/// Logs all flags with their values.
pub(super) fn log_flags(flags: &[(&str, String)]) {
    for (name, value) in flags {
        tracing::info!("FLAG: --{name}={}", quoted(value));
    }
}

/// Logs the effective config without its secrets.
pub(super) fn log_config(config: &ProxyConfig) {
    for line in config_yaml(config).lines() {
        tracing::info!("Effective config: {line}");
    }
}

/// The effective config as YAML, without its secrets.
fn config_yaml(config: &ProxyConfig) -> String {
    let mut config = config.clone();
    redact(&mut config);
    yaml::write(&to_proto_json(&config))
}

/// Replaces what may be secret.
fn redact(config: &mut ProxyConfig) {
    for (name, value) in &mut config.proxy_metadata {
        if credential_likelihood(name) >= CredentialLikelihood::Possible {
            REDACTED.clone_into(value);
        }
    }

    let lightstep = config
        .tracing
        .as_mut()
        .and_then(|tracing| tracing.lightstep.as_mut());
    if let Some(lightstep) = lightstep
        && !lightstep.access_token.is_empty()
    {
        REDACTED.clone_into(&mut lightstep.access_token);
    }

    let probe = config
        .readiness_probe
        .as_mut()
        .and_then(|probe| probe.http_get.as_mut());
    for header in probe.into_iter().flat_map(|probe| &mut probe.http_headers) {
        REDACTED.clone_into(&mut header.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_is_yaml_without_secrets() {
        let text = r#"
            discoveryAddress: istiod.example:15012
            proxyMetadata:
              ISTIO_META_DNS_CAPTURE: "true"
              XDS_HEADER_X_API: hunter2
              db_password: hunter2
            tracing: {lightstep: {address: "a:1", accessToken: hunter2}}
            readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: cookie, value: hunter2}]}}
        "#;
        let config = ProxyConfig::istio_defaults().apply(text).unwrap().value;

        let shown = config_yaml(&config);
        let read = yaml::parse(&shown, yaml::Schema::V1_2).unwrap();
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(read["discoveryAddress"], "istiod.example:15012");
        assert_eq!(read["proxyMetadata"]["ISTIO_META_DNS_CAPTURE"], "true");
        assert_eq!(read["proxyMetadata"]["db_password"], REDACTED);
        assert_eq!(read["tracing"]["lightstep"]["accessToken"], REDACTED);
        let header = &read["readinessProbe"]["httpGet"]["httpHeaders"][0];
        assert_eq!(header["name"], "cookie");
        assert_eq!(header["value"], REDACTED);
    }

    #[test]
    fn a_token_that_is_not_set_is_not_shown_as_one() {
        let text = "tracing: {lightstep: {address: 'a:1'}}";
        let config = ProxyConfig::istio_defaults().apply(text).unwrap().value;
        assert!(!config_yaml(&config).contains(REDACTED));
    }
}
