//! Application of a port's policy to a cluster, in Istio's order.

use navarch_proto::envoy::config::cluster::v3::cluster::LbPolicy;

use super::builder::{ClusterBuilder, Discovery};
use super::outbound_inputs::{Outbound, Purpose, is_passthrough};
use super::tls::{Upstream, decide};
use super::{connection_pool, load_balancer, outlier, tls_context, transport};
use crate::endpoints::locality_setting::LocalitySetting;
use crate::filters::alpn;
use crate::{hbone, mtls};
use navarch_api::istio::{ClientTlsMode, ClientTlsSettings, TrafficPolicy};
use navarch_push::view::View;
use navarch_registry::model::Registry;

/// Applies a policy to an outbound cluster.
pub(super) fn apply_outbound(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    outbound: &Outbound<'_>,
    policy: Option<&TrafficPolicy>,
) {
    let mesh = view.mesh();
    let pool = policy.and_then(|policy| policy.connection_pool.as_deref());
    let balancer = policy.and_then(|policy| policy.load_balancer.as_deref());
    let protocol = outbound.port.protocol;
    if connection_pool::upgrades(mesh, pool, protocol) {
        builder.http.upgrade();
    }

    connection_pool::apply(
        builder,
        mesh,
        pool,
        policy.and_then(|policy| policy.retry_budget.as_ref()),
    );

    let needs_unhealthy = load_balancer::forbids_panic(mesh, outbound.service);
    outlier::apply(
        builder,
        policy.and_then(|policy| policy.outlier_detection.as_deref()),
        needs_unhealthy,
    );
    let locality = LocalitySetting::effective(&mesh.config, balancer, outbound.service);
    let hash = balancer.and_then(|balancer| balancer.consistent_hash.as_ref());

    if let Some(fault) = hash.and_then(load_balancer::rejected) {
        let host = &outbound.service.key.hostname;
        view.remark(format!(
            "DestinationRule of {host}: trafficPolicy.loadBalancer.consistentHash: {fault}"
        ));
    }

    load_balancer::apply(
        builder,
        mesh,
        outbound.service,
        protocol,
        balancer,
        locality.as_ref(),
    );

    if outbound.purpose == Purpose::Client {
        apply_tls(
            view,
            builder,
            outbound,
            policy.and_then(|policy| policy.tls.as_deref()),
        );
        transport::apply_proxy_protocol(
            builder,
            policy.and_then(|policy| policy.proxy_protocol.as_ref()),
        );
    }

    finish(builder);
}

/// Applies a policy to an inbound cluster, for which only limits apply.
pub(super) fn apply_inbound(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    policy: Option<&TrafficPolicy>,
) {
    let pool = policy.and_then(|policy| policy.connection_pool.as_deref());
    connection_pool::apply(
        builder,
        view.mesh(),
        pool,
        policy.and_then(|policy| policy.retry_budget.as_ref()),
    );
    finish(builder);
}

/// Clusters to the original destination have no load balancing.
fn finish(builder: &mut ClusterBuilder) {
    if builder.discovery == Discovery::OriginalDst {
        builder.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    }
}

/// Decides on TLS and applies it to the cluster.
fn apply_tls(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    outbound: &Outbound<'_>,
    rule: Option<&ClientTlsSettings>,
) {
    let Outbound {
        name,
        service,
        port,
        subset,
        ..
    } = *outbound;

    let sni = if builder.is_dynamic() {
        String::new()
    } else {
        name.sni()
    };

    let whole = match subset {
        Some(subset) => subset.traffic_policy.as_deref(),
        None => outbound.rule.and_then(|rule| rule.policy.as_deref()),
    };
    let upstream = Upstream {
        service,
        sni: &sni,
        // With explicit TLS settings, auto mTLS and all of its inputs are not read.
        mode: match rule {
            None => mtls::of_service(view, service, port.port, whole.is_some_and(is_passthrough)),
            Some(_) => None,
        },
        checks_accounts: !builder.is_dynamic(),
    };

    let Some(decision) = decide(view, rule, upstream) else {
        if hbone::sends(view) {
            transport::apply_hbone(view, builder, None);
        }
        return;
    };

    let originates = matches!(
        decision.settings.mode,
        ClientTlsMode::Simple | ClientTlsMode::Mutual
    );
    let declares = originates && service.registry == Registry::External;
    let declared_names = if declares && decision.settings.subject_alt_names.is_empty() {
        upstream.accounts(view)
    } else {
        Vec::new()
    };

    let client = tls_context::Client {
        declared_names: &declared_names,
        rule_has_selector: outbound.rule.is_some_and(|rule| rule.selector.is_some()),
    };
    let istio = decision.settings.mode == ClientTlsMode::IstioMutual;
    let context = tls_context::build(view, builder, &decision.settings, client);
    if context.is_none() && !tls_context::is_complete(&decision.settings) {
        return;
    }

    if let Some(context) = &context {
        transport::apply_tls(builder, context, decision.by, istio);
        let is_of_mesh = !matches!(
            rule.map(|rule| rule.mode),
            Some(ClientTlsMode::Simple | ClientTlsMode::Mutual)
        );
        if is_of_mesh && alpn::is_stood_in(view) {
            builder.metadata.alpn = Some(builder.http.version.upstream());
        }
    }

    if hbone::sends(view) {
        transport::apply_hbone(view, builder, Some((decision.by, istio)));
    }
}
