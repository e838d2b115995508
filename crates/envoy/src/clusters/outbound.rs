//! Clusters of services and their subsets.

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::LbPolicy;
use navarch_proto::envoy::config::core::v3::{HealthStatus, HealthStatusSet};

use super::builder::{ClusterBuilder, Discovery, stat_name};
use super::http::HttpOptions;
use super::metadata::NamedService;
use super::outbound_inputs::{Outbound, Purpose, is_passthrough};
use super::traffic_policy;
use super::{dns, dynamic_dns, exchange_filter, original_dst_port};
use crate::destination_rule::{self, port_policy, subset_policy, with_mesh_defaults};
use crate::endpoints::health::keeps_draining;
use crate::endpoints::locality_setting::LocalitySetting;
use crate::endpoints::{self, EndpointPath, Group, Target};
use crate::filters::dynamic_forward_proxy::resolves_by_name;
use crate::filters::ext_proc;
use crate::filters::tunnel::cluster_baggage;
use crate::hbone;
use crate::names::OutboundCluster;
use crate::service_port::of_port;
use crate::sidecar_scope;
use crate::sidecar_waypoint;
use crate::stat_prefix::{self, StatService};
use navarch_api::istio::TrafficPolicy;
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;
use navarch_registry::model::{Registry, Resolution, Service, ServicePort};
use navarch_registry::protocol::Protocol;

/// The cluster of this name, if the proxy gets it.
pub(super) fn build(view: &View<'_>, name: &OutboundCluster, purpose: Purpose) -> Option<Cluster> {
    let service = sidecar_scope::host_service(view, &name.host)?;
    let port = service
        .port(name.port)
        .filter(|port| has_cluster(&service, port, purpose))?;
    let rule = destination_rule::for_service(view, &service);
    let dynamic = purpose == Purpose::Client
        && resolves_by_name(&service)
        && !sidecar_waypoint::is_in_front(view, &service.key);
    let subset = match name.subset.as_str() {
        "" => None,
        _ if dynamic => return None,
        subset => Some(rule.as_ref()?.subset(subset)?),
    };

    let outbound = Outbound {
        name,
        service: &service,
        port,
        rule: rule.as_deref(),
        subset: subset.map(|subset| &**subset),
        purpose,
    };

    let builder = if dynamic {
        dynamic_dns::builder(view, &name.to_string(), &service, port.protocol)
    } else {
        outbound.builder(view)?
    };

    Some(outbound.complete(view, builder).finish())
}

/// The health status that endpoints of persistent sessions may have, if the service has such
/// sessions.
pub(crate) fn draining_override(view: &View<'_>, service: &Service) -> Option<HealthStatusSet> {
    let statuses = [
        HealthStatus::Healthy,
        HealthStatus::Draining,
        HealthStatus::Unknown,
        HealthStatus::Degraded,
    ];
    keeps_draining(&view.mesh().settings, service).then(|| HealthStatusSet {
        statuses: statuses.into_iter().map(Into::into).collect(),
    })
}

pub(super) fn has_cluster(service: &Service, port: &ServicePort, purpose: Purpose) -> bool {
    match (purpose, service.resolution) {
        // As in Istio, gateways that route by SNI also have clusters for aliases, which stay empty.
        (Purpose::SniRouted, _) => !service.mesh_external && port.protocol != Protocol::Udp,
        (Purpose::Client, Resolution::Alias) => false,
        // All endpoints of a pool are in the cluster of its first port.
        (Purpose::Client, _) if ext_proc::is_pool(service) => service.ports.first() == Some(port),
        (Purpose::Client, _) if resolves_by_name(service) => dynamic_dns::is_carried(port.protocol),
        (Purpose::Client, _) => port.protocol != Protocol::Udp,
    }
}

impl Outbound<'_> {
    /// The cluster before any policy; `None` if it would never have endpoints.
    fn builder(&self, view: &View<'_>) -> Option<ClusterBuilder> {
        let mut builder = ClusterBuilder::new(
            self.purpose.resource_name(self.name).as_str(),
            self.discovery(view),
        );
        builder.common_lb();

        match builder.discovery {
            Discovery::StrictDns | Discovery::LogicalDns => {
                dns::apply(view, &mut builder, self.service.races_connections)
            }
            Discovery::OriginalDst => {
                if let Some(port) = self.service.passthrough_target_ports.get(&self.port.port) {
                    builder.cluster.lb_config = Some(original_dst_port(*port));
                }
            }
            Discovery::Static | Discovery::Eds | Discovery::Dynamic(_) => {}
        }

        let mesh = view.mesh();
        builder.http = HttpOptions::for_protocol(view, self.port.protocol);
        if mesh.settings.telemetry_label {
            builder.metadata.services = Some(vec![NamedService::new(self.service)]);
        }

        let named = StatService {
            host: self.service.key.hostname.as_str(),
            subset: &self.name.subset,
            port: self.port.port,
            port_name: self.port.name.as_str(),
        };

        builder.cluster.alt_stat_name = stat_name(&stat_prefix::outbound(
            view,
            self.service,
            named,
            &builder.cluster.name,
        ));

        self.inline_endpoints(view, &mut builder)?;
        Some(builder)
    }

    /// The discovery type before the traffic policy is applied. A subset starts from the result for
    /// the host.
    fn discovery(&self, view: &View<'_>) -> Discovery {
        let declared = self.declared_discovery(view);
        if let Some(subset) = self.subset {
            let own = subset.traffic_policy.as_deref().is_some_and(is_passthrough);
            let redis = view.mesh().settings.redis_filter && self.port.protocol == Protocol::Redis;
            let host = port_policy(
                self.rule.and_then(|rule| rule.policy.as_deref()),
                self.port.port,
            );
            if own || (!redis && host.as_ref().is_some_and(is_passthrough)) {
                return Discovery::OriginalDst;
            }
        }
        declared
    }

    /// The discovery type that the service declares, unless its endpoints are a waypoint's.
    fn declared_discovery(&self, view: &View<'_>) -> Discovery {
        if sidecar_waypoint::is_in_front(view, &self.service.key) {
            return Discovery::Eds;
        }
        declared_discovery(view, self.service)
    }

    /// Adds endpoints that the proxy resolves to the cluster; `None` if there are none.
    fn inline_endpoints(&self, view: &View<'_>, builder: &mut ClusterBuilder) -> Option<()> {
        if !matches!(
            builder.discovery,
            Discovery::StrictDns | Discovery::LogicalDns
        ) {
            return Some(());
        }

        let policy = endpoints::policy(self.rule, self.subset, self.port.port);
        let target = Target {
            service: self.service,
            port: self.port.port,
            rule: self.rule,
            subset: self.subset,
            policy: policy.as_ref(),
            sni_routed: self.purpose == Purpose::SniRouted,
            by_dns: true,
            way: EndpointPath::Client,
        };

        let registered = view.endpoints(&self.service.key)?;
        let candidates = of_port(registered, self.service, self.port.port);
        let mut groups = endpoints::groups(view, &target, candidates);
        if groups.is_empty() {
            view.count("pilot_dns_cluster_without_endpoints", self.name.to_string());
            return None;
        }

        let policy = self.policy(view);
        let rule = policy
            .as_ref()
            .and_then(|policy| policy.load_balancer.as_deref());
        if let Some(setting) = LocalitySetting::effective(&view.mesh().config, rule, self.service) {
            let fails_over = policy
                .as_ref()
                .is_some_and(|policy| policy.outlier_detection.is_some());
            // Istio has workload labels only for whole services, not for subsets.
            let labelled = self.subset.is_none() && self.purpose == Purpose::Client;
            endpoints::arrange(view, &setting, &mut groups, fails_over, labelled);
        }

        builder.endpoints = groups.into_iter().map(Group::into_wire).collect();
        Some(())
    }

    /// The policy of the cluster: the subset's overrides the port's, the host's, and the mesh's.
    pub(super) fn policy(&self, view: &View<'_>) -> Option<TrafficPolicy> {
        let host = port_policy(
            self.rule.and_then(|rule| rule.policy.as_deref()),
            self.port.port,
        );
        let host = with_mesh_defaults(host, &view.mesh().config);
        match self.subset {
            Some(subset) => subset_policy(
                host.as_ref(),
                subset.traffic_policy.as_deref(),
                self.port.port,
            ),
            None => host,
        }
    }

    /// Applies policy and metadata to a builder.
    fn complete(&self, view: &View<'_>, mut builder: ClusterBuilder) -> ClusterBuilder {
        let is_whole_service = self.subset.is_none() && self.purpose == Purpose::Client;
        if is_whole_service
            && !builder.is_dynamic()
            && let Some(statuses) = draining_override(view, self.service)
        {
            builder.common_lb().override_host_status = Some(statuses);
        }

        let policy = self.policy(view);
        traffic_policy::apply_outbound(view, &mut builder, self, policy.as_ref());

        if is_whole_service
            && ext_proc::is_pool(self.service)
            && view.proxy().kind() == ProxyKind::Router
        {
            builder.cluster.lb_policy = LbPolicy::ClusterProvided.into();
            builder.cluster.load_balancing_policy = Some(ext_proc::load_balancing());
        }

        builder.cluster.filters.extend(exchange_filter(view));
        builder.metadata.external = self.service.mesh_external && self.subset.is_none();
        builder.metadata.is_tunnelled =
            is_whole_service && endpoints::all_take_hbone(view, &self.service.key, self.port.port);

        if hbone::sends(view) && builder.discovery == Discovery::Eds {
            builder.cluster.filters.extend(cluster_baggage(view));
        }

        if let Some(rule) = self.rule {
            builder.metadata.rule = Some(rule.name.clone());
            builder.metadata.subset = self.subset.map(|subset| subset.name.clone());
            let tls = policy.as_ref().and_then(|policy| policy.tls.as_deref());
            builder.metadata.set_tls_mode(tls.map(|tls| tls.mode));
        }

        builder
    }
}

/// The discovery type that a service declares.
pub(super) fn declared_discovery(view: &View<'_>, service: &Service) -> Discovery {
    match service.resolution {
        // One logical host with all addresses, which are tried at once.
        Resolution::DnsLb if service.races_connections => Discovery::LogicalDns,
        Resolution::DnsLb => Discovery::StrictDns,
        Resolution::DnsRoundRobinLb => Discovery::LogicalDns,
        Resolution::Passthrough => {
            let headless =
                service.registry == Registry::Kubernetes && view.mesh().settings.eds_for_headless;
            // Gateways have no original destination.
            let balances = headless || view.proxy().kind() == ProxyKind::Router;
            if balances {
                Discovery::Eds
            } else {
                Discovery::OriginalDst
            }
        }
        Resolution::ClientSideLb | Resolution::Alias | Resolution::DynamicDns => Discovery::Eds,
    }
}
