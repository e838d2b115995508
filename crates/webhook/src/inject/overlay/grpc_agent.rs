//! The overlay `grpc-agent`: an agent without Envoy, for applications with xDS in their gRPC
//! library.

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume, VolumeMount};

use super::super::context::{Context, ImageOf};
use super::super::error::InjectError;
use super::super::names::{PROXY, REWRITE_PROBES};
use super::{Overlay, args, env, meta, proxy, resources, volumes};

/// The agent's port for probes, since there is no Envoy.
const AGENT_PORT: i32 = 15020;

/// Builds the overlay.
///
/// # Errors
/// When an annotation is not valid JSON.
pub(super) fn build(context: &Context<'_>) -> Result<Overlay, InjectError> {
    let mut annotations = meta::annotations(context);
    annotations.insert(REWRITE_PROBES.to_owned(), "false".to_owned());
    let mut containers = vec![agent(context)?];
    containers.extend(
        context
            .app_containers()
            .map(|name| application(context, name)),
    );

    Ok(Overlay {
        labels: meta::labels(context, meta::canonical_name(context).to_owned()),
        annotations,
        unsourced: vec!["workload-socket", "workload-certs"],
        spec: PodSpec {
            containers,
            volumes: Some(pod_volumes(context)?),
            image_pull_secrets: proxy::pull_secrets(context),
            ..PodSpec::default()
        },
    })
}

fn agent(context: &Context<'_>) -> Result<Container, InjectError> {
    let mut container = Container {
        name: PROXY.to_owned(),
        image: Some(context.image(ImageOf::Proxy)),
        ports: Some(proxy::port("mesh-metrics", AGENT_PORT)),
        args: Some(args::agent(context, "sidecar")),
        lifecycle: Some(proxy::wait_for_proxy(&[
            "--url=http://localhost:15020/healthz/ready",
        ])),
        env: Some(env::grpc_agent(context)),
        image_pull_policy: proxy::pull_policy(context),
        ..Container::default()
    };

    // The template has one condition for all three fields.
    if context.status_port() != "0" {
        container.readiness_probe = Some(proxy::readiness_probe(context, AGENT_PORT));
        container.resources = Some(resources::resources(context));
        container.volume_mounts = Some(mounts(context));
    }

    let own = volumes::mounts_of_user(context)?;
    if !own.is_empty() {
        container.volume_mounts.get_or_insert_default().extend(own);
    }

    Ok(container)
}

/// The additions to a container of the application.
fn application(context: &Context<'_>, name: &str) -> Container {
    Container {
        name: name.to_owned(),
        env: Some(vec![
            env::plain("GRPC_XDS_EXPERIMENTAL_SECURITY_SUPPORT", "true"),
            env::plain("GRPC_XDS_BOOTSTRAP", "/etc/istio/proxy/grpc-bootstrap.json"),
        ]),
        volume_mounts: Some(vec![
            volumes::mount("istio-data", "/var/lib/istio/data"),
            volumes::mount("istio-xds", "/etc/istio/proxy"),
            volumes::certificates_mount(context),
        ]),
        ..Container::default()
    }
}

/// The volume mounts of the agent.
fn mounts(context: &Context<'_>) -> Vec<VolumeMount> {
    let mut mounts = vec![
        volumes::mount("workload-socket", "/var/run/secrets/workload-spiffe-uds"),
        volumes::certificates_mount(context),
    ];
    if volumes::trusts_own_ca(context) {
        mounts.push(volumes::mount("istiod-ca-cert", "/var/run/secrets/istio"));
    }
    mounts.push(volumes::mount("istio-data", "/var/lib/istio/data"));
    mounts.push(volumes::mount("istio-xds", "/etc/istio/proxy"));
    mounts.push(volumes::mount("istio-token", "/var/run/secrets/tokens"));
    mounts.extend(volumes::mtls_certificates_mount(context));
    mounts.push(volumes::mount("istio-podinfo", "/etc/istio/pod"));
    mounts
}

fn pod_volumes(context: &Context<'_>) -> Result<Vec<Volume>, InjectError> {
    let mut found = vec![
        volumes::unsourced("workload-socket"),
        volumes::certificates(context, volumes::unsourced("workload-certs")),
    ];
    found.extend(volumes::bootstrap(context));
    found.push(volumes::memory("istio-xds"));
    found.extend(volumes::agent(context));
    found.extend(volumes::roots(context));
    found.extend(volumes::mtls_certificates(context));
    found.extend(volumes::of_user(context)?);
    Ok(found)
}
