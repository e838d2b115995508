//! The overlay `gateway`: a proxy as the pod's application.

use k8s_openapi::api::core::v1::{
    Container, Lifecycle, PodSecurityContext, PodSpec, SecurityContext, Sysctl, Volume,
};

use super::super::context::{Context, ImageOf};
use super::super::names::PROXY;
use super::{Overlay, args, env, meta, proxy, volumes};

pub(super) fn build(context: &Context<'_>) -> Overlay {
    Overlay {
        labels: meta::labels(context, meta::canonical_name(context).to_owned()),
        annotations: meta::annotations(context),
        unsourced: vec!["workload-socket"],
        spec: PodSpec {
            security_context: Some(
                context
                    .values
                    .gateways
                    .own_security_context()
                    .unwrap_or_else(low_ports),
            ),
            containers: vec![container(context)],
            volumes: Some(pod_volumes(context)),
            image_pull_secrets: proxy::pull_secrets(context),
            ..PodSpec::default()
        },
    }
}

/// A security context that lets the pod's containers bind low ports.
fn low_ports() -> PodSecurityContext {
    let sysctl = Sysctl {
        name: "net.ipv4.ip_unprivileged_port_start".to_owned(),
        value: "0".to_owned(),
    };
    PodSecurityContext {
        sysctls: Some(vec![sysctl]),
        ..PodSecurityContext::default()
    }
}

fn container(context: &Context<'_>) -> Container {
    let own = context.values.global.proxy.lifecycle.clone();
    Container {
        name: PROXY.to_owned(),
        image: Some(context.image(ImageOf::Proxy)),
        ports: Some(proxy::port("http-envoy-prom", 15090)),
        args: Some(args::agent(context, "router")),
        lifecycle: own.filter(|lifecycle| *lifecycle != Lifecycle::default()),
        security_context: Some(SecurityContext {
            run_as_user: Some(context.ids.user),
            run_as_group: Some(context.ids.group),
            ..SecurityContext::default()
        }),
        env: Some(env::gateway(context)),
        image_pull_policy: proxy::pull_policy(context),
        readiness_probe: Some(proxy::readiness_probe_of_values(context)),
        volume_mounts: Some(volumes::mounts_of_proxy(context, None)),
        ..Container::default()
    }
}

fn pod_volumes(context: &Context<'_>) -> Vec<Volume> {
    let mut found = vec![
        volumes::unsourced("workload-socket"),
        volumes::empty("credential-socket"),
        volumes::certificates(context, volumes::empty("workload-certs")),
    ];
    found.extend(volumes::bootstrap(context));
    found.push(volumes::memory("istio-envoy"));
    found.extend(volumes::agent(context));
    found.extend(volumes::roots(context));
    found.extend(volumes::mtls_certificates(context));
    found
}
