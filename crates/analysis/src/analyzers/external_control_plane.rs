//! Webhooks of a control plane outside of the cluster.

use std::net::IpAddr;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;

/// Checks that webhooks of a control plane outside of the cluster have the URL of a host name.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "externalcontrolplane.ExternalControlPlaneAnalyzer",
    description: "Checks that the remote IstioOperator resources reference an external control plane",
    inputs: &[
        Kind::ValidatingWebhookConfiguration,
        Kind::MutatingWebhookConfiguration,
    ],
    run,
}];

/// Checks the addresses of Istio's webhooks.
fn run(context: &Context, report: &mut Report) {
    for (resource, configuration) in context.specs::<ValidatingWebhookConfiguration>() {
        if resource.name == "istiod-default-validator"
            || resource.name.starts_with("istio-validator")
        {
            for hook in configuration.webhooks.iter().flatten() {
                report_fault(
                    report,
                    |kind, parameters| Message::new(kind, resource, parameters),
                    &hook.name,
                    &hook.client_config,
                );
            }
        }
    }

    for (resource, configuration) in context.specs::<MutatingWebhookConfiguration>() {
        if resource.name.starts_with("istio-sidecar-injector") {
            for hook in configuration.webhooks.iter().flatten() {
                report_fault(
                    report,
                    |kind, parameters| Message::new(kind, resource, parameters),
                    &hook.name,
                    &hook.client_config,
                );
            }
        }
    }
}

/// Tells what is wrong with the address of a webhook.
fn report_fault(
    report: &mut Report,
    message: impl Fn(&'static messages::MessageType, &[crate::parameters::Parameter]) -> Message,
    hook: &str,
    config: &WebhookClientConfig,
) {
    match &config.url {
        None if config.service.is_none() => {
            report.add(message(
                &messages::INVALID_EXTERNAL_CONTROL_PLANE_CONFIG,
                parameters!["", hook, "is blank"],
            ));
        }
        None => {}

        Some(url) => match host_of(url) {
            None => {
                let parameters = parameters![url, hook, "was provided in an invalid format"];
                report.add(message(
                    &messages::INVALID_EXTERNAL_CONTROL_PLANE_CONFIG,
                    parameters,
                ));
            }
            Some(host) if host.parse::<IpAddr>().is_ok() => {
                report.add(message(
                    &messages::EXTERNAL_CONTROL_PLANE_ADDRESS_IS_NOT_A_HOSTNAME,
                    parameters![url, hook],
                ));
            }
            Some(_) => {}
        },
    }
}

/// The host of a URL without its port; `None` if it is not a URL. A relative one has an empty host.
fn host_of(url: &str) -> Option<&str> {
    if url.chars().any(|sign| sign.is_ascii_control()) {
        return None;
    }

    let Some((scheme, rest)) = url.split_once("://") else {
        // A colon before any slash ends a scheme, which starts with a letter.
        let first = url.split('/').next().unwrap_or_default();
        return (!first.contains(':')
            || first.starts_with(|sign: char| sign.is_ascii_alphabetic()))
        .then_some("");
    };

    let is_scheme = scheme.starts_with(|sign: char| sign.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|sign| sign.is_ascii_alphanumeric() || "+-.".contains(sign));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let (name, port) = match host.strip_prefix('[') {
        Some(address) => address.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|sign| sign.is_ascii_digit()));

    (is_scheme && is_port && !name.contains([' ', '<', '>', '"', '%'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_is_found() {
        assert_eq!(
            host_of("https://istiod.example.com:15017/inject"),
            Some("istiod.example.com")
        );
        assert_eq!(host_of("https://[::1]:15017/inject"), Some("::1"));
        assert_eq!(host_of("https://10.0.0.1/inject"), Some("10.0.0.1"));
        assert_eq!(host_of("inject"), Some(""));
        for bad in [
            "https://a:b/c",
            "https://a b/",
            "1ttps://a",
            ":/a",
            "https://[::1",
        ] {
            assert_eq!(host_of(bad), None, "{bad}");
        }
    }
}
