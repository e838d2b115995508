//! Deployments and pods: the Services in front of them, and the user they run as.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, PodSpec, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::in_mesh::{PROXY, is_control_plane, is_deployment_in_mesh};
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Texts;

/// Checks that Services before the same pods agree about ports, and that no application runs as the
/// proxy's user.
pub(super) static ANALYZERS: &[Analyzer] = &[
    Analyzer {
        name: "deployment.MultiServiceAnalyzer",
        description: "Checks association between services and pods",
        inputs: &[Kind::Service, Kind::Deployment, Kind::Namespace],
        run: services,
    },
    Analyzer {
        name: "applicationUID.Analyzer",
        description: "Checks invalid application UID",
        inputs: &[Kind::Pod, Kind::Deployment],
        run: user,
    },
];

/// The label of what the control plane makes for a Gateway.
const MANAGED: &str = "gateway.istio.io/managed";
/// The value of [`MANAGED`] at waypoints.
const WAYPOINT: &str = "istio.io-mesh-controller";
/// The user that the proxy runs as.
const PROXY_USER: i64 = 1337;

/// Warns of Services before the same pods that disagree about a port.
fn services(context: &Context, report: &mut Report) {
    let none = Texts::new();

    for (resource, deployment) in context.specs::<Deployment>() {
        if resource.label(MANAGED) == Some(WAYPOINT)
            || !is_deployment_in_mesh(resource, deployment, context)
        {
            continue;
        }
        let template = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.template.metadata.as_ref());
        let labels = template
            .and_then(|metadata| metadata.labels.as_ref())
            .unwrap_or(&none);

        let mut protocols: BTreeMap<i32, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
        let mut targets: BTreeMap<String, BTreeMap<i32, String>> = BTreeMap::new();

        for (service, spec) in context.services_selecting(&resource.namespace, labels) {
            for port in spec
                .spec
                .iter()
                .flat_map(|spec| spec.ports.iter().flatten())
            {
                let protocol = port
                    .protocol
                    .as_deref()
                    .filter(|protocol| !protocol.is_empty())
                    .unwrap_or("TCP");
                protocols
                    .entry(port.port)
                    .or_default()
                    .entry(protocol)
                    .or_default()
                    .push(service.full_name());
                targets
                    .entry(target(port))
                    .or_default()
                    .insert(port.port, service.full_name());
            }
        }

        for (port, by_protocol) in protocols
            .into_iter()
            .filter(|(_, by_protocol)| by_protocol.len() > 1)
        {
            let mut names: Vec<_> = by_protocol.into_values().flatten().collect();
            names.sort_unstable();
            let parameters = parameters![&resource.name, port, names];
            let message = Message::new(
                &messages::DEPLOYMENT_ASSOCIATED_TO_MULTIPLE_SERVICES,
                resource,
                parameters,
            );
            report.add(message.at("metadata.name"));
        }

        for (target, by_port) in targets.into_iter().filter(|(_, by_port)| by_port.len() > 1) {
            let ports: Vec<_> = by_port.keys().copied().collect();
            let mut names: Vec<_> = by_port.into_values().collect();
            names.sort_unstable();
            let parameters = parameters![&resource.name, names, target, ports];
            let message = Message::new(
                &messages::DEPLOYMENT_CONFLICTING_PORTS,
                resource,
                parameters,
            );
            report.add(message.at("metadata.name"));
        }
    }
}

/// The target port of a Service's port; defaults to the port itself.
fn target(port: &ServicePort) -> String {
    match &port.target_port {
        Some(IntOrString::String(name)) if !name.is_empty() => name.clone(),
        Some(IntOrString::Int(number)) if *number != 0 => number.to_string(),
        Some(_) | None => port.port.to_string(),
    }
}

/// Warns of applications that run as the proxy's user, whose traffic is not redirected.
fn user(context: &Context, report: &mut Report) {
    let pods = context
        .specs::<Pod>()
        .map(|(resource, pod)| (resource, pod.spec.as_ref()));
    let deployments = context.specs::<Deployment>();
    let deployments = deployments.map(|(resource, deployment)| {
        (
            resource,
            deployment
                .spec
                .as_ref()
                .and_then(|spec| spec.template.spec.as_ref()),
        )
    });

    for (resource, spec) in pods.chain(deployments) {
        if !is_control_plane(resource) && spec.is_some_and(runs_as_proxy) {
            report.add(Message::new(
                &messages::INVALID_APPLICATION_UID,
                resource,
                parameters![],
            ));
        }
    }
}

/// Whether a container other than the proxy runs as its user.
fn runs_as_proxy(spec: &PodSpec) -> bool {
    let own = spec
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_user);
    let applications = spec
        .containers
        .iter()
        .filter(|container| container.name != PROXY && container.name != "istio-operator");
    let mut users =
        applications.filter_map(|container| container.security_context.as_ref()?.run_as_user);
    own == Some(PROXY_USER) || users.any(|user| user == PROXY_USER)
}
