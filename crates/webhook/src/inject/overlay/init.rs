//! The init container that sets up traffic capture, or validates it if the CNI plugin sets it up.

use k8s_openapi::api::core::v1::{Capabilities, Container, SecurityContext};

use super::super::context::{Context, ImageOf, PROXY_ID};
use super::super::names::{INIT, VALIDATION};
use super::{env, proxy, resources};

/// Ports of the proxy itself, which are excluded from capture.
const OWN_PORTS: &str = "15090,15021";

pub(super) fn build(context: &Context<'_>) -> Container {
    let cni = context.values.pilot.cni.enabled;
    let metadata = env::metadata(context);
    Container {
        name: if cni { VALIDATION } else { INIT }.to_owned(),
        image: Some(context.image(ImageOf::Init)),
        args: Some(args(context)),
        image_pull_policy: proxy::pull_policy(context),
        env: (!metadata.is_empty()).then_some(metadata),
        resources: Some(resources::resources(context)),
        security_context: Some(security_context(context)),
        ..Container::default()
    }
}

/// The inbound ports to exclude: the ports from the annotation or the values, and the agent's port.
pub(super) fn excluded_inbound_ports(context: &Context<'_>) -> String {
    let annotation = "traffic.sidecar.istio.io/excludeInboundPorts";
    let excluded = context.annotation_or(
        annotation,
        &context.values.global.proxy.exclude_inbound_ports,
    );
    let own = context.status_port().trim();
    if own.is_empty() || own == "0" || excluded.split(',').any(|port| port == own) {
        return excluded.to_owned();
    }
    let ports = excluded
        .split(',')
        .map(str::trim)
        .filter(|port| !port.is_empty());
    ports.chain([own]).collect::<Vec<_>>().join(",")
}

/// The outbound ports to capture for any destination, or to exclude: from the annotation, even if
/// empty, else from the values if not empty.
pub(super) fn outbound_ports<'a>(context: &Context<'a>, included: Included) -> Option<&'a str> {
    let proxy = &context.values.global.proxy;
    let (annotation, value) = match included {
        Included::Yes => (
            "traffic.sidecar.istio.io/includeOutboundPorts",
            &proxy.include_outbound_ports,
        ),
        Included::No => (
            "traffic.sidecar.istio.io/excludeOutboundPorts",
            &proxy.exclude_outbound_ports,
        ),
    };
    context
        .annotation(annotation)
        .or(Some(value.as_str()).filter(|value| !value.is_empty()))
}

/// The list of outbound ports to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Included {
    /// The ports to capture.
    Yes,
    /// The ports to exclude.
    No,
}

/// The arguments for the agent's `istio-iptables` command.
fn args(context: &Context<'_>) -> Vec<String> {
    let global = &context.values.global;
    let proxy = &global.proxy;
    let port = |port: i32, default: &str| {
        if port == 0 {
            default.to_owned()
        } else {
            port.to_string()
        }
    };

    let user = if context.interception_mode() == "TPROXY" {
        PROXY_ID
    } else {
        context.ids.user
    };

    let excluded = excluded_inbound_ports(context);
    let dash = if excluded.is_empty() { "" } else { "," };
    let traffic = |name: &str, value| {
        context
            .annotation_or(&format!("traffic.sidecar.istio.io/{name}"), value)
            .to_owned()
    };
    let mut args = vec!["istio-iptables".to_owned()];
    let mut flag = |name: &str, value: String| args.extend([name.to_owned(), value]);
    flag("-p", port(context.mesh.proxy_listen_port, "15001"));

    flag("-z", port(context.mesh.proxy_inbound_listen_port, "15006"));
    flag("-u", user.to_string());
    flag("-m", context.interception_mode().to_owned());
    flag(
        "-i",
        traffic("includeOutboundIPRanges", &proxy.include_ip_ranges),
    );
    flag(
        "-x",
        traffic("excludeOutboundIPRanges", &proxy.exclude_ip_ranges),
    );

    flag(
        "-b",
        traffic("includeInboundPorts", &proxy.include_inbound_ports),
    );
    flag("-d", format!("{OWN_PORTS}{dash}{excluded}"));
    if let Some(ports) = outbound_ports(context, Included::Yes) {
        flag("-q", ports.to_owned());
    }

    if let Some(ports) = outbound_ports(context, Included::No) {
        flag("-o", ports.to_owned());
    }

    let virtual_interfaces = [
        "istio.io/reroute-virtual-interfaces",
        "traffic.sidecar.istio.io/kubevirtInterfaces",
    ];
    if let Some(interfaces) = virtual_interfaces
        .iter()
        .find_map(|name| context.annotation(name))
    {
        flag("-k", interfaces.to_owned());
    }
    if let Some(interfaces) = context.annotation("traffic.sidecar.istio.io/excludeInterfaces") {
        flag("-c", interfaces.to_owned());
    }

    let level = context.annotation_or("sidecar.istio.io/agentLogLevel", &global.logging.level);
    args.push(format!("--log_output_level={level}"));
    args.extend(switches(context).into_iter().map(str::to_owned));
    args
}

/// The boolean flags at the end of the arguments.
fn switches(context: &Context<'_>) -> Vec<&'static str> {
    let global = &context.values.global;
    let cni = context.values.pilot.cni.enabled;
    let force = !cni && global.proxy_init.force_apply_iptables;
    let switches = [
        (global.log_as_json, "--log_as_json"),
        (cni, "--run-validation"),
        (cni, "--skip-rule-apply"),
        (force, "--force-apply"),
        (global.native_nftables, "--native-nftables"),
    ];
    switches
        .into_iter()
        .filter(|(on, _)| *on)
        .map(|(_, switch)| switch)
        .collect()
}

/// The security context: allows changing the pod's network, or with the CNI plugin nothing.
fn security_context(context: &Context<'_>) -> SecurityContext {
    let cni = context.values.pilot.cni.enabled;
    let tproxy = context.interception_mode() == "TPROXY";
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let id = |id: i64| match (cni, tproxy) {
        (false, _) => 0,
        (true, true) => PROXY_ID,
        (true, false) => id,
    };

    let privileged = context.values.global.proxy.privileged;
    SecurityContext {
        allow_privilege_escalation: Some(privileged),
        privileged: Some(privileged),
        capabilities: Some(Capabilities {
            add: (!cni).then(|| names(&["NET_ADMIN", "NET_RAW"])),
            drop: Some(names(&["ALL"])),
        }),
        read_only_root_filesystem: Some(cni),
        run_as_group: Some(id(context.ids.group)),
        run_as_user: Some(id(context.ids.user)),
        run_as_non_root: Some(cni),
        seccomp_profile: proxy::seccomp_profile(context),
        ..SecurityContext::default()
    }
}
