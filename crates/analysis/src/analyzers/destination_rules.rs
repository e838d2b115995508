//! DestinationRules.

use k8s_openapi::api::core::v1::Pod;
use navarch_api::istio::{ClientTlsMode, ClientTlsSettings, DestinationRule};

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::hosts::Hosts;
use crate::kind::Kind;
use crate::labels::is_subset;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Texts;

/// Checks that servers' certificates are verified, and that hosts exist and subsets have pods.
pub(super) static ANALYZERS: &[Analyzer] = &[
    Analyzer {
        name: "destinationrule.CaCertificateAnalyzer",
        description: "Checks if caCertificates is set when TLS mode is SIMPLE/MUTUAL",
        inputs: &[Kind::DestinationRule],
        run: certificates,
    },
    Analyzer {
        name: "destinationrule.SubsetSelectPodAnalyzer",
        description: "Checks if pods are selected by subsets in destination rules.",
        inputs: &[
            Kind::DestinationRule,
            Kind::Pod,
            Kind::Service,
            Kind::ServiceEntry,
            Kind::Node,
        ],
        run: subsets,
    },
];

/// The labels of nodes that pods take over, from the widest place to the narrowest.
const LOCALITY: [&str; 3] = [
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.istio.io/subzone",
];
/// The label of pods that names their node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Warns of servers whose certificates are not verified.
fn certificates(context: &Context, report: &mut Report) {
    for (resource, rule) in context.specs::<DestinationRule>() {
        let Some(policy) = &rule.traffic_policy else {
            continue;
        };

        let has_selector = rule.workload_selector.is_some();
        let name = resource.full_name();
        let namespace = &resource.namespace;

        if let Some(mode) = policy
            .tls
            .as_ref()
            .and_then(|tls| unchecked(tls, has_selector))
        {
            let parameters = parameters![&name, namespace, mode, &rule.host];
            let kind = &messages::NO_SERVER_CERTIFICATE_VERIFICATION_DESTINATION_LEVEL;
            report.add(
                Message::new(kind, resource, parameters)
                    .at("spec.trafficPolicy.tls.caCertificates"),
            );
        }

        for (index, port) in policy.port_level_settings.iter().enumerate() {
            if let Some(mode) = port
                .tls
                .as_ref()
                .and_then(|tls| unchecked(tls, has_selector))
            {
                // The port is written as protobuf writes it; one without a number is empty.
                let number = port
                    .port
                    .as_ref()
                    .map(|port| port.number)
                    .filter(|number| *number != 0);
                let number = number
                    .map(|number| format!("number:{number}"))
                    .unwrap_or_default();
                let parameters = parameters![&name, namespace, mode, &rule.host, number];
                let kind = &messages::NO_SERVER_CERTIFICATE_VERIFICATION_PORT_LEVEL;
                let field =
                    format!("spec.trafficPolicy.portLevelSettings[{index}].tls.caCertificates");
                report.add(Message::new(kind, resource, parameters).at(&field));
            }
        }
    }
}

/// The mode of TLS without a CA that servers are checked with.
fn unchecked(tls: &ClientTlsSettings, has_selector: bool) -> Option<&'static str> {
    let mode = match tls.mode {
        ClientTlsMode::Simple => "SIMPLE",
        ClientTlsMode::Mutual => "MUTUAL",
        ClientTlsMode::Disable | ClientTlsMode::IstioMutual => return None,
    };
    let names_credential =
        !tls.credential_name.is_empty() || !tls.ca_cert_credential_name.is_empty();
    let has_credential = names_credential && has_selector;
    (tls.ca_certificates.is_empty() && !has_credential).then_some(mode)
}

/// Tells of hosts that are not there, and of subsets without pods.
fn subsets(context: &Context, report: &mut Report) {
    let hosts = Hosts::of(context);
    let mut pods: Option<Vec<Texts>> = None;

    for (resource, rule) in context.specs::<DestinationRule>() {
        let Some(host) = hosts.find(&resource.namespace, &rule.export_to, &rule.host) else {
            report.add(Message::new(
                &messages::UNKNOWN_DESTINATION_RULE_HOST,
                resource,
                parameters![&rule.host],
            ));
            continue;
        };

        for subset in &rule.subsets {
            let pods = pods.get_or_insert_with(|| located_pods(context));
            let mut selector = host.selector.clone();
            selector.extend(
                subset
                    .labels
                    .iter()
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
            if !pods.iter().any(|labels| is_subset(&selector, labels)) {
                let kind = &messages::DESTINATION_RULE_SUBSET_NOT_SELECT_PODS;
                report.add(Message::new(kind, resource, parameters![&subset.name]));
            }
        }
    }
}

/// The labels of all pods, those that say where they are among them.
fn located_pods(context: &Context) -> Vec<Texts> {
    let pods = context.specs::<Pod>().map(|(resource, pod)| {
        let mut labels = resource.labels.clone();
        let node = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .unwrap_or_default();

        if !node.is_empty() {
            let locality = context.find(Kind::Node, "", node);
            // A level without the one above it is ignored.
            let known = LOCALITY.iter().map_while(|key| {
                locality?
                    .label(key)
                    .filter(|value| !value.is_empty())
                    .map(|value| (*key, value))
            });
            labels.extend(known.map(|(key, value)| (key.to_owned(), value.to_owned())));
            labels.insert(HOSTNAME.to_owned(), node.to_owned());
        }

        labels
    });

    pods.collect()
}
