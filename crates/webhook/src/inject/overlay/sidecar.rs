//! The overlay `sidecar`: a proxy in addition to the application, which receives all traffic of the
//! pod.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, Lifecycle, PodSpec, SecurityContext, Volume, VolumeMount,
};

use super::super::context::{Context, ImageOf, PROXY_ID};
use super::super::error::InjectError;
use super::super::multus;
use super::super::names::{INTERCEPTION_MODE, PROXY};
use super::{Overlay, args, env, init, meta, proxy, resources, volumes};

/// Volumes without a source, for which Kubernetes' default applies.
const UNSOURCED: [&str; 3] = ["workload-socket", "credential-socket", "workload-certs"];

/// The proxy metadata that enables HBONE.
const ENABLE_HBONE: &str = "ISTIO_META_ENABLE_HBONE";

/// The proxy metadata that enables log rules of traffic capture.
const TRACE_LOGGING: &str = "IPTABLES_TRACE_LOGGING";

/// Builds the overlay.
///
/// # Errors
/// When an annotation is not valid JSON.
pub(super) fn build(context: &Context<'_>) -> Result<Overlay, InjectError> {
    let mut overlay = Overlay {
        unsourced: UNSOURCED.to_vec(),
        ..Overlay::default()
    };
    overlay.labels = meta::labels(context, meta::cut(meta::canonical_name(context)));
    let tls = context
        .label("security.istio.io/tlsMode")
        .unwrap_or("istio");

    overlay
        .labels
        .insert("security.istio.io/tlsMode".to_owned(), tls.to_owned());

    if context
        .metadata()
        .get(ENABLE_HBONE)
        .is_some_and(|value| value == "true")
    {
        let tunnel = context
            .label("networking.istio.io/tunnel")
            .unwrap_or("http");
        overlay
            .labels
            .insert("networking.istio.io/tunnel".to_owned(), tunnel.to_owned());
    }

    overlay.annotations = meta::annotations(context);
    if context.values.pilot.cni.enabled {
        overlay.annotations.extend(for_cni(context));
    }

    let mut init_containers = Vec::new();
    if context.interception_mode() != "NONE" {
        init_containers.push(init::build(context));
    }

    let mut containers = Vec::new();
    let proxies = if context.is_native() {
        &mut init_containers
    } else {
        &mut containers
    };

    proxies.push(container(context)?);
    overlay.spec = PodSpec {
        init_containers: (!init_containers.is_empty()).then_some(init_containers),
        containers,
        volumes: Some(pod_volumes(context)?),
        image_pull_secrets: proxy::pull_secrets(context),
        ..PodSpec::default()
    };

    Ok(overlay)
}

/// The annotations with the capture settings for the CNI plugin.
fn for_cni(context: &Context<'_>) -> Vec<(String, String)> {
    let proxy = &context.values.global.proxy;
    let mut annotations = Vec::new();
    let mut set = |name: &str, value: String| annotations.push((name.to_owned(), value));

    if context.values.pilot.cni.provider.as_str() == "multus" {
        let networks = context.annotation(multus::NETWORKS).unwrap_or_default();
        set(multus::NETWORKS, multus::with_network(networks));
    }

    set(INTERCEPTION_MODE, context.interception_mode().to_owned());
    let traffic = |name: &str| format!("traffic.sidecar.istio.io/{name}");

    for (name, value) in [
        ("includeOutboundIPRanges", &proxy.include_ip_ranges),
        ("excludeOutboundIPRanges", &proxy.exclude_ip_ranges),
    ] {
        let ranges = context.annotation_or(&traffic(name), value);
        if !ranges.is_empty() {
            set(&traffic(name), ranges.to_owned());
        }
    }

    let ports = context.annotation_or(
        &traffic("includeInboundPorts"),
        &proxy.include_inbound_ports,
    );
    set(&traffic("includeInboundPorts"), ports.to_owned());
    set(
        &traffic("excludeInboundPorts"),
        init::excluded_inbound_ports(context),
    );

    if let Some(ports) = init::outbound_ports(context, init::Included::Yes) {
        set(&traffic("includeOutboundPorts"), ports.to_owned());
    }

    if let Some(ports) = init::outbound_ports(context, init::Included::No) {
        set(&traffic("excludeOutboundPorts"), ports.to_owned());
    }

    annotations
}

fn container(context: &Context<'_>) -> Result<Container, InjectError> {
    let probed = context.status_port() != "0";
    let mut arguments = args::agent(context, "sidecar");
    let outliers = &context.values.global.proxy.outlier_log_path;
    if !outliers.is_empty() {
        arguments.push(format!("--outlierLogPath={outliers}"));
    }

    Ok(Container {
        name: PROXY.to_owned(),
        image: Some(context.image(ImageOf::Proxy)),
        restart_policy: context.is_native().then(|| "Always".to_owned()),
        ports: Some(proxy::port("http-envoy-prom", 15090)),
        args: Some(arguments),
        lifecycle: lifecycle(context),
        env: Some(env::sidecar(context)?),
        image_pull_policy: proxy::pull_policy(context),
        startup_probe: proxy::startup_probe(context).filter(|_| probed),
        readiness_probe: probed.then(|| proxy::readiness_probe(context, proxy::ENVOY_HEALTH)),
        security_context: Some(security_context(context)),
        resources: Some(resources::resources(context)),
        volume_mounts: Some(mounts(context)?),
        ..Container::default()
    })
}

/// The lifecycle hooks of the container: from the values, else hooks that wait for the proxy or
/// drain it.
fn lifecycle(context: &Context<'_>) -> Option<Lifecycle> {
    let proxy = &context.values.global.proxy;
    let own = proxy
        .lifecycle
        .clone()
        .filter(|lifecycle| *lifecycle != Lifecycle::default());
    let hold = context
        .proxy_config()
        .hold_application_until_proxy_starts
        .unwrap_or_default()
        || proxy.hold_application_until_proxy_starts;
    match (own, context.is_native()) {
        (Some(own), _) => Some(own),
        (None, true) => Some(proxy::drain_first(context)),
        (None, false) => hold.then(|| proxy::wait_for_proxy(&[])),
    }
}

/// The security context of the container.
fn security_context(context: &Context<'_>) -> SecurityContext {
    let names =
        |names: &[&str]| -> Vec<_> { names.iter().map(|name| (*name).to_owned()).collect() };
    let traced = context
        .metadata()
        .get(TRACE_LOGGING)
        .is_some_and(|value| value == "true");
    let tproxy = context.interception_mode() == "TPROXY";
    let low_ports = context.annotation_or(
        "sidecar.istio.io/capNetBindService",
        &context.values.global.proxy.cap_net_bind_service,
    );
    let low_ports = low_ports == "true";

    let wanted = [
        (traced || tproxy, "NET_ADMIN"),
        (low_ports && !traced, "NET_BIND_SERVICE"),
    ];
    let wanted: Vec<_> = wanted
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .map(|(_, name)| name.to_owned())
        .collect();

    let privileged = traced || context.values.global.proxy.privileged;
    let root = traced || tproxy || low_ports;
    let group = if root && !traced {
        PROXY_ID
    } else {
        context.ids.group
    };

    SecurityContext {
        allow_privilege_escalation: Some(privileged),
        privileged: Some(privileged),
        capabilities: Some(Capabilities {
            add: (!wanted.is_empty()).then_some(wanted),
            drop: Some(names(&["ALL"])),
        }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(!root),
        run_as_user: Some(if root { 0 } else { context.ids.user }),
        run_as_group: Some(group),
        seccomp_profile: proxy::seccomp_profile(context),
        ..SecurityContext::default()
    }
}

/// The volume mounts of the container.
fn mounts(context: &Context<'_>) -> Result<Vec<VolumeMount>, InjectError> {
    let revoked = volumes::mount("istio-ca-crl", "/var/run/secrets/istio/crl");
    let mut mounts = volumes::mounts_of_proxy(context, Some(revoked));
    mounts.extend(volumes::lightstep_mount(context));
    mounts.extend(volumes::mounts_of_user(context)?);
    Ok(mounts)
}

fn pod_volumes(context: &Context<'_>) -> Result<Vec<Volume>, InjectError> {
    let mut found = vec![
        volumes::unsourced("workload-socket"),
        volumes::unsourced("credential-socket"),
        volumes::certificates(context, volumes::unsourced("workload-certs")),
    ];
    found.extend(volumes::bootstrap(context));
    found.push(volumes::memory("istio-envoy"));
    found.extend(volumes::agent(context));
    found.extend(volumes::roots(context));
    found.push(volumes::revoked(context));
    found.extend(volumes::mtls_certificates(context));
    found.extend(volumes::of_user(context)?);
    found.extend(volumes::lightstep(context));
    Ok(found)
}
