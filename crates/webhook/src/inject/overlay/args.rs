//! The arguments of the agent.

use super::super::context::Context;

/// The arguments with which the agent runs a proxy of type `sidecar` or `router`.
pub(super) fn agent(context: &Context<'_>, kind: &str) -> Vec<String> {
    let global = &context.values.global;
    let level = |flag: &str, annotation: &str, value| {
        format!("--{flag}={}", context.annotation_or(annotation, value))
    };
    let proxy = &global.proxy;
    let mut args = vec![
        "proxy".to_owned(),
        kind.to_owned(),
        "--domain".to_owned(),
        format!("$(POD_NAMESPACE).svc.{}", proxy.cluster_domain),
        level(
            "proxyLogLevel",
            "sidecar.istio.io/logLevel",
            &proxy.log_level,
        ),
        level(
            "proxyComponentLogLevel",
            "sidecar.istio.io/componentLogLevel",
            &proxy.component_log_level,
        ),
        level(
            "log_output_level",
            "sidecar.istio.io/agentLogLevel",
            &global.logging.level,
        ),
    ];

    args.extend(
        global
            .sts
            .service_port
            .set()
            .map(|port| format!("--stsPort={port}")),
    );

    if global.log_as_json {
        args.push("--log_as_json".to_owned());
    }

    args
}
