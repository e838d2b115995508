//! Gateways: the ports of the Service before their pods, and their certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use navarch_api::istio::{Gateway, ServerTlsSettings};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::labels::{first_key, is_subset, selector_of, text};
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Resource;

/// Checks that Services have the ports of Gateways, that no two Gateways share a certificate, and
/// that their Secrets exist and are valid.
pub(super) static ANALYZERS: &[Analyzer] = &[
    Analyzer {
        name: "gateway.IngressGatewayPortAnalyzer",
        description: "Checks a gateway's ports against the gateway's Kubernetes service ports",
        inputs: &[Kind::Gateway, Kind::Pod, Kind::Service],
        run: ports,
    },
    Analyzer {
        name: "gateway.CertificateAnalyzer",
        description: "Checks a gateway certificate",
        inputs: &[Kind::Gateway],
        run: duplicate_certificates,
    },
    Analyzer {
        name: "gateway.SecretAnalyzer",
        description: "Checks a gateway's referenced secrets for correctness",
        inputs: &[Kind::Gateway, Kind::Pod, Kind::Secret],
        run: secrets,
    },
];

/// The keys of certificate and private key in a Secret, in order of precedence.
const CREDENTIAL_KEYS: [[&str; 2]; 2] = [["cert", "key"], ["tls.crt", "tls.key"]];

/// A message that no pod has what a Gateway selects.
pub(super) fn nothing_selected(resource: &Arc<Resource>, gateway: &Gateway) -> Message {
    let parameters = parameters!["selector", text(&gateway.selector)];
    let message = Message::new(
        &messages::REFERENCED_RESOURCE_NOT_FOUND,
        resource,
        parameters,
    );
    message.at(&format!("spec.selector.{}", first_key(&gateway.selector)))
}

/// Warns of ports that no Service before the pods of a Gateway has.
fn ports(context: &Context, report: &mut Report) {
    for (resource, gateway) in context.specs::<Gateway>() {
        let mut offered = BTreeSet::new();
        let mut pods = 0_usize;

        for pod in context.pods_with(&gateway.selector) {
            pods += 1;
            let services = context
                .services_of(&pod.namespace)
                .map(|(_, service)| service);

            // A Service without a selector is treated as one that selects all.
            let before = services.filter(|service| {
                selector_of(service).is_none_or(|selector| is_subset(selector, &pod.labels))
            });
            let ports = before.flat_map(|service| {
                service
                    .spec
                    .iter()
                    .flat_map(|spec| spec.ports.iter().flatten())
            });

            offered.extend(
                ports
                    .filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP")
                    .flat_map(numbers),
            );
        }

        if pods == 0 {
            report.add(nothing_selected(resource, gateway));
            continue;
        }

        for port in gateway
            .servers
            .iter()
            .filter_map(|server| server.port.as_ref())
        {
            if !offered.contains(&port.number) {
                let parameters = parameters![port.number, text(&gateway.selector)];
                let message = Message::new(
                    &messages::GATEWAY_PORT_NOT_DEFINED_ON_SERVICE,
                    resource,
                    parameters,
                );
                report.add(message.at(&format!("spec.selector.{}", first_key(&gateway.selector))));
            }
        }
    }
}

/// The ports of pods for a port of a Service: the same one, and the target port.
fn numbers(port: &ServicePort) -> impl Iterator<Item = u32> + use<> {
    let target = match &port.target_port {
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => name.parse().ok(),
        None => None,
    };
    [Some(port.port), target]
        .into_iter()
        .flatten()
        .filter_map(|number| u32::try_from(number).ok())
}

/// The identity of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Certificate<'a> {
    /// The name of a Secret.
    Credential(&'a str),
    /// Files of certificate and key.
    Files(&'a str, &'a str),
}

fn certificate(tls: &ServerTlsSettings) -> Option<Certificate<'_>> {
    match (
        tls.credential_name.as_str(),
        tls.server_certificate.as_str(),
        tls.private_key.as_str(),
    ) {
        ("", "", _) | ("", _, "") => None,
        ("", certificate, key) => Some(Certificate::Files(certificate, key)),
        (name, ..) => Some(Certificate::Credential(name)),
    }
}

/// Warns of Gateways of the same pods with the same certificate: clients may reuse a connection for
/// a host of the other.
fn duplicate_certificates(context: &Context, report: &mut Report) {
    let mut by_certificate: BTreeMap<Certificate<'_>, Vec<(&Arc<Resource>, &Gateway)>> =
        BTreeMap::new();

    for (resource, gateway) in context.specs::<Gateway>() {
        let own: BTreeSet<_> = gateway
            .servers
            .iter()
            .filter_map(|server| certificate(server.tls.as_ref()?))
            .collect();
        for certificate in own {
            by_certificate
                .entry(certificate)
                .or_default()
                .push((resource, gateway));
        }
    }

    for gateways in by_certificate.values() {
        for (resource, gateway) in gateways {
            for (other, other_gateway) in gateways
                .iter()
                .filter(|(other, _)| !Arc::ptr_eq(other, resource))
            {
                if is_subset(&gateway.selector, &other_gateway.selector) {
                    let names = vec![resource.full_name(), other.full_name()];
                    let message = Message::new(
                        &messages::GATEWAY_DUPLICATE_CERTIFICATE,
                        resource,
                        parameters![names],
                    );
                    report.add(message.at("metadata.name"));
                }
            }
        }
    }
}

/// Tells of Secrets that are not there or hold no valid certificate.
fn secrets(context: &Context, report: &mut Report) {
    for (resource, gateway) in context.specs::<Gateway>() {
        // Secrets are read in the namespace of the pods; all are taken to be in one.
        let Some(pod) = context.pods_with(&gateway.selector).next() else {
            report.add(nothing_selected(resource, gateway));
            continue;
        };

        for (index, server) in gateway.servers.iter().enumerate() {
            let Some(name) = server
                .tls
                .as_ref()
                .map(|tls| tls.credential_name.as_str())
                .filter(|name| !name.is_empty())
            else {
                continue;
            };

            let (of, short) = name.split_once('/').unwrap_or((&pod.namespace, name));
            let message = match context.find(Kind::Secret, of, short) {
                None => Message::new(
                    &messages::REFERENCED_RESOURCE_NOT_FOUND,
                    resource,
                    parameters!["credentialName", name],
                ),
                Some(secret) if secret.spec::<Secret>().is_some_and(is_valid) => continue,
                Some(_) => {
                    let parameters = parameters![&resource.name, &pod.namespace];
                    Message::new(&messages::INVALID_GATEWAY_CREDENTIAL, resource, parameters)
                }
            };

            report.add(message.at(&format!("spec.servers[{index}].tls.credentialName")));
        }
    }
}

/// Whether a Secret holds a key and a certificate that is valid now.
fn is_valid(secret: &Secret) -> bool {
    let value = |key: &str| {
        let written = secret
            .string_data
            .as_ref()
            .and_then(|data| data.get(key))
            .map(String::as_bytes);
        let stored = || {
            secret
                .data
                .as_ref()
                .and_then(|data| data.get(key))
                .map(|value| value.0.as_slice())
        };
        written.or_else(stored).filter(|value| !value.is_empty())
    };

    let pair = CREDENTIAL_KEYS
        .iter()
        .find_map(|[certificate, key]| value(certificate).zip(value(key)));
    pair.is_some_and(|(certificate, _)| is_certificate_valid(certificate, Timestamp::now()))
}

/// Whether the first block of PEM holds certificates that are all valid at a time.
fn is_certificate_valid(pem: &[u8], now: Timestamp) -> bool {
    let Ok((_, block)) = parse_x509_pem(pem) else {
        return false;
    };
    let mut rest = block.contents.as_slice();
    while !rest.is_empty() {
        let Ok((after, certificate)) = X509Certificate::from_der(rest) else {
            return false;
        };
        let validity = certificate.validity();
        let from = validity.not_before.timestamp();
        let to = validity.not_after.timestamp();
        if now.as_second() < from || now.as_second() > to {
            return false;
        }
        rest = after;
    }
    true
}
