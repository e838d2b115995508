//! Common parts of proxy containers.

use k8s_openapi::api::core::v1::{
    ContainerPort, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, LocalObjectReference,
    Probe, SeccompProfile,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::context::Context;

/// The timeout of the proxy's probes, in seconds.
const PROBE_TIMEOUT: i32 = 3;

/// The port of Envoy's health endpoint.
pub(super) const ENVOY_HEALTH: i32 = 15021;

/// A port of the proxy.
pub(super) fn port(name: &str, number: i32) -> Vec<ContainerPort> {
    let protocol = Some("TCP".to_owned());
    vec![ContainerPort {
        container_port: number,
        name: Some(name.to_owned()),
        protocol,
        ..ContainerPort::default()
    }]
}

/// The image pull policy, if the values set one.
pub(super) fn pull_policy(context: &Context<'_>) -> Option<String> {
    let policy = &context.values.global.image_pull_policy;
    (!policy.is_empty()).then(|| policy.to_string())
}

/// The secrets for pulling images, if the values set any.
pub(super) fn pull_secrets(context: &Context<'_>) -> Option<Vec<LocalObjectReference>> {
    let secrets = context.values.global.image_pull_secrets.iter();
    let secrets: Vec<_> = secrets
        .map(|secret| LocalObjectReference {
            name: secret.to_string(),
        })
        .collect();
    (!secrets.is_empty()).then_some(secrets)
}

/// The seccomp profile, if the values set a non-empty one.
pub(super) fn seccomp_profile(context: &Context<'_>) -> Option<SeccompProfile> {
    context
        .values
        .global
        .proxy
        .seccomp_profile
        .clone()
        .filter(|profile| *profile != SeccompProfile::default())
}

/// A lifecycle handler that runs the agent with arguments.
fn run_agent(args: &[&str]) -> Option<LifecycleHandler> {
    let command = std::iter::once("pilot-agent")
        .chain(args.iter().copied())
        .map(str::to_owned)
        .collect();
    Some(LifecycleHandler {
        exec: Some(ExecAction {
            command: Some(command),
        }),
        ..LifecycleHandler::default()
    })
}

/// Lifecycle hooks that wait after the start until the proxy is ready.
pub(super) fn wait_for_proxy(further: &[&str]) -> Lifecycle {
    let args: Vec<_> = std::iter::once("wait")
        .chain(further.iter().copied())
        .collect();
    Lifecycle {
        post_start: run_agent(&args),
        ..Lifecycle::default()
    }
}

/// Lifecycle hooks that start draining when the pod stops. SIGTERM follows after the application
/// has stopped.
pub(super) fn drain_first(context: &Context<'_>) -> Lifecycle {
    let port = format!("--debug-port={}", context.status_port());
    Lifecycle {
        pre_stop: run_agent(&["request", &port, "POST", "drain"]),
        ..Lifecycle::default()
    }
}

/// Parses a number of a probe; `None` uses Kubernetes' default.
fn number(text: &str) -> Option<i32> {
    text.trim().parse().ok()
}

/// A readiness probe on a port.
fn ready(port: i32) -> Probe {
    let action = HTTPGetAction {
        path: Some("/healthz/ready".to_owned()),
        port: IntOrString::Int(port),
        ..HTTPGetAction::default()
    };
    Probe {
        http_get: Some(action),
        timeout_seconds: Some(PROBE_TIMEOUT),
        ..Probe::default()
    }
}

/// The startup probe, if the values enable it.
pub(super) fn startup_probe(context: &Context<'_>) -> Option<Probe> {
    let probe = &context.values.global.proxy.startup_probe;
    probe.enabled.then(|| Probe {
        period_seconds: Some(1),
        failure_threshold: number(probe.failure_threshold.as_str()),
        ..ready(ENVOY_HEALTH)
    })
}

/// The readiness probe with the settings of annotations and values.
pub(super) fn readiness_probe(context: &Context<'_>, port: i32) -> Probe {
    let proxy = &context.values.global.proxy;
    let requested = |name: &str, value| {
        number(context.annotation_or(&format!("readiness.status.sidecar.istio.io/{name}"), value))
    };
    Probe {
        initial_delay_seconds: requested(
            "initialDelaySeconds",
            &proxy.readiness_initial_delay_seconds,
        ),
        period_seconds: requested("periodSeconds", &proxy.readiness_period_seconds),
        failure_threshold: requested("failureThreshold", &proxy.readiness_failure_threshold),
        ..ready(port)
    }
}

/// The readiness probe with the settings of the values only.
pub(super) fn readiness_probe_of_values(context: &Context<'_>) -> Probe {
    let proxy = &context.values.global.proxy;
    Probe {
        initial_delay_seconds: number(proxy.readiness_initial_delay_seconds.as_str()),
        period_seconds: number(proxy.readiness_period_seconds.as_str()),
        failure_threshold: number(proxy.readiness_failure_threshold.as_str()),
        ..ready(ENVOY_HEALTH)
    }
}
