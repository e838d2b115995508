//! Metrics of the push thread, under Istio's names and with its buckets
//! (`pilot/pkg/xds/monitoring.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::engine::{EngineSizes, Reads};
use super::fact::{FactKey, RemoteFact};
use super::mesh_state::{Change, RemoteChange};
use super::notice::Unavailable;
use navarch_api::object::Kind;
use navarch_base::counter::Count;
use navarch_store::Objects;

/// Handles of the metrics of this module. Clones share the values; the default is not registered.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// `pilot_inbound_updates`.
    updates: Family<TypeLabel, Count>,
    /// `pilot_push_triggers`.
    triggers: Family<TypeLabel, Count>,
    /// `pilot_debounce_time`.
    gathering: Histogram,
    /// `pilot_pushcontext_init_seconds`.
    snapshot: Histogram,
    /// `pilot_k8s_cfg_events`.
    configuration: Family<EventLabel, Count>,
    /// `pilot_k8s_reg_events`.
    registry: Family<EventLabel, Count>,
    /// `xds_cache_size`.
    results: Gauge,
    /// `xds_cache_dependent_config_size`.
    inputs: Gauge,
    /// `xds_cache_reads`.
    reads: Family<TypeLabel, Count>,
    /// `pilot_k8s_endpoints_pending_pod` and `endpoint_no_pod`.
    pending: Gauge,
    /// `pilot_k8s_endpoints_with_no_pods`.
    without_pod: Count,
    /// `pilot_sds_certificate_errors_total`.
    secrets: Count,
    /// `provider_lookup_cluster_failures`.
    providers: Family<TypeLabel, Count>,
    /// `pilot_k8s_proxies_with_no_service_targets`.
    targets: Family<ReasonLabel, Count>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    /// The value that istiod uses.
    reason: &'static str,
}

/// Kind and event of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    /// The kind, as named by istiod.
    r#type: &'static str,
    /// `add`, `update` or `delete`.
    event: &'static str,
}

/// The label `type`: of an update, or the trigger of a push.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabel {
    /// The value that istiod uses.
    r#type: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            updates: Family::default(),
            triggers: Family::default(),
            gathering: Histogram::new([0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]),
            snapshot: Histogram::new([0.01, 0.1, 0.5, 1.0, 3.0, 5.0]),
            configuration: Family::default(),
            registry: Family::default(),
            results: Gauge::default(),
            inputs: Gauge::default(),
            reads: Family::default(),
            pending: Gauge::default(),
            without_pod: Count::default(),
            secrets: Count::default(),
            providers: Family::default(),
            targets: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers all metrics of this module.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let m = metrics.clone();
        registry.register(
            "pilot_inbound_updates",
            "Changes of objects and other inputs, by type",
            m.updates,
        );

        registry.register(
            "pilot_push_triggers",
            "Pushes to proxies, by the type of the change that caused them",
            m.triggers,
        );

        registry.register(
            "pilot_debounce_time",
            "Seconds from the first debounced change to the push",
            m.gathering,
        );

        registry.register(
            "pilot_pushcontext_init_seconds",
            "Seconds to apply a batch of changes and build the snapshot",
            m.snapshot,
        );

        registry.register(
            "pilot_k8s_cfg_events",
            "Events of objects that configure the mesh",
            m.configuration,
        );

        registry.register(
            "pilot_k8s_reg_events",
            "Events of objects that define services and endpoints",
            m.registry,
        );

        registry.register(
            "xds_cache_size",
            "Cached results of the engine, resources included",
            m.results,
        );

        registry.register(
            "xds_cache_dependent_config_size",
            "Inputs that cached results depend on",
            m.inputs,
        );

        registry.register(
            "xds_cache_reads",
            "Lookups of engine results, by hit or miss",
            m.reads,
        );
        let help = "Endpoints of EndpointSlices whose pods are not known yet";
        registry.register("pilot_k8s_endpoints_pending_pod", help, m.pending.clone());
        registry.register("endpoint_no_pod", help, m.pending);

        registry.register(
            "pilot_k8s_endpoints_with_no_pods",
            "Endpoints of EndpointSlices that arrived before their pods",
            m.without_pod,
        );

        registry.register(
            "pilot_sds_certificate_errors_total",
            "Requests of proxies for keys, certificates and roots that failed",
            m.secrets,
        );

        registry.register(
            "provider_lookup_cluster_failures",
            "Failed lookups of the services of extension providers, by kind of the provider",
            m.providers,
        );

        registry.register(
            "pilot_k8s_proxies_with_no_service_targets",
            "Proxies that no Kubernetes Service selects, by reason",
            m.targets,
        );

        metrics
    }

    pub(super) fn count_received(&self, changes: &[Change]) {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for r#type in changes.iter().filter_map(update) {
            *counts.entry(r#type).or_default() += 1;
        }
        for (r#type, count) in counts {
            self.updates
                .get_or_create(&TypeLabel { r#type })
                .inc_by(count);
        }
    }

    /// Counts changes that are about to be applied to these objects.
    pub(super) fn count_changes(&self, changes: &[Change], objects: &Objects) {
        let mut counts: BTreeMap<(Kind, &'static str), u64> = BTreeMap::new();

        for change in changes {
            let event = match change {
                Change::Put(object) if objects.contains(&object.object_ref()) => {
                    (object.kind(), "update")
                }
                Change::Put(object) => (object.kind(), "add"),
                Change::Removed(name) => (name.kind, "delete"),
                // Changes of remote clusters are not counted: whether the object existed before is
                // not known here.
                Change::Remote(..)
                | Change::Mesh(_)
                | Change::Networks(_)
                | Change::SecretReader(..)
                | Change::Keys(..)
                | Change::TrustBundle(_)
                | Change::Quarantine(..)
                | Change::RestoreQuarantine(..)
                | Change::ReleaseQuarantine(_)
                | Change::GatewayHost(..)
                | Change::Stages
                | Change::FindPeers
                | Change::Learned(..)
                | Change::Rollout(..) => continue,
            };

            *counts.entry(event).or_default() += 1;
        }

        for ((kind, event), count) in counts {
            let (family, r#type) = match registry_label(kind) {
                Some(word) => (&self.registry, word),
                None => (&self.configuration, kind.as_str()),
            };
            family
                .get_or_create(&EventLabel { r#type, event })
                .inc_by(count);
        }
    }

    /// Sets the gauges of the engine's size and of endpoints that wait for their pods.
    pub(super) fn set_sizes(&self, sizes: EngineSizes, reads: Reads, pending: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.results.set(number(sizes.results));
        self.inputs.set(number(sizes.facts));
        for (r#type, count) in [("hit", reads.held), ("miss", reads.computed)] {
            raise(&self.reads.get_or_create(&TypeLabel { r#type }), count);
        }
        let more = number(pending).saturating_sub(self.pending.set(number(pending)));
        self.without_pod
            .inc_by(u64::try_from(more).unwrap_or_default());
    }

    /// Counts failed lookups.
    pub(super) fn failed(&self, times: BTreeMap<Unavailable, u64>) {
        for (what, times) in times {
            match what {
                Unavailable::Secret => self.secrets.inc_by(times),
                Unavailable::Provider(r#type) => self
                    .providers
                    .get_or_create(&TypeLabel { r#type })
                    .inc_by(times),
                Unavailable::Targets(reason) => self
                    .targets
                    .get_or_create(&ReasonLabel { reason })
                    .inc_by(times),
            };
        }
    }

    /// Observes how long changes were debounced and how long applying them took.
    pub(super) fn observe_applied(&self, gathered: Duration, took: Duration) {
        self.gathering.observe(gathered.as_secs_f64());
        self.snapshot.observe(took.as_secs_f64());
    }

    /// Counts pushed collections by cause.
    pub(super) fn pushed(&self, triggers: BTreeSet<&'static str>, published: usize) {
        let published = u64::try_from(published).unwrap_or(u64::MAX);
        if published == 0 {
            return;
        }
        for r#type in triggers {
            self.triggers
                .get_or_create(&TypeLabel { r#type })
                .inc_by(published);
        }
    }
}

/// Raises a counter to a value that never decreases.
fn raise(count: &Count, to: u64) {
    count.inc_by(to.saturating_sub(count.get()));
}

/// The triggers of a push after changes of these facts.
pub(super) fn triggers(facts: &[FactKey]) -> BTreeSet<&'static str> {
    // Facts are sorted, so equal triggers are mostly beside each other.
    let mut triggers: Vec<&'static str> = facts.iter().map(trigger).collect();
    triggers.dedup();
    triggers.into_iter().collect()
}

/// The name that istiod uses for kinds of the registry.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all others configure the mesh"
)]
fn registry_label(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Service => Some("Services"),
        Kind::EndpointSlice => Some("EndpointSlice"),
        Kind::Pod => Some("Pods"),
        Kind::Node => Some("Nodes"),
        Kind::Namespace => Some("Namespaces"),
        _ => None,
    }
}

/// The `type` of a change in `pilot_inbound_updates`; `None` if istiod does not count it.
fn update(change: &Change) -> Option<&'static str> {
    match change {
        Change::Put(object) | Change::Remote(_, RemoteChange::Put(object)) => {
            of_kind(object.kind(), "svc")
        }
        Change::Removed(name) | Change::Remote(_, RemoteChange::Removed(name)) => {
            of_kind(name.kind, "svcdelete")
        }
        Change::Mesh(_) | Change::Networks(_) | Change::Keys(..) | Change::TrustBundle(_) => {
            Some("config")
        }
        Change::GatewayHost(..)
        | Change::Remote(_, RemoteChange::Reset(_) | RemoteChange::Gone) => Some("config"),
        Change::SecretReader(..) | Change::Remote(_, RemoteChange::SecretReader(..)) => None,
        Change::Quarantine(..) | Change::RestoreQuarantine(..) | Change::ReleaseQuarantine(_) => {
            None
        }
        Change::Stages | Change::FindPeers | Change::Learned(..) | Change::Rollout(..) => None,
    }
}

/// The `type` of a change of an object of a kind; `service` for Services.
fn of_kind(kind: Kind, service: &'static str) -> Option<&'static str> {
    match kind {
        Kind::Service => Some(service),
        Kind::EndpointSlice => Some("eds"),
        Kind::Pod | Kind::Node | Kind::ServiceAccount => None,

        Kind::Namespace
        | Kind::Secret
        | Kind::ConfigMap
        | Kind::Ingress
        | Kind::IngressClass
        | Kind::VirtualService
        | Kind::DestinationRule
        | Kind::Gateway
        | Kind::ServiceEntry
        | Kind::WorkloadEntry
        | Kind::Sidecar
        | Kind::EnvoyFilter
        | Kind::ProxyConfig
        | Kind::WorkloadGroup
        | Kind::PeerAuthentication
        | Kind::AuthorizationPolicy
        | Kind::RequestAuthentication
        | Kind::Telemetry
        | Kind::WasmPlugin
        | Kind::TrafficExtension
        | Kind::GatewayClass
        | Kind::KubernetesGateway
        | Kind::HttpRoute
        | Kind::GrpcRoute
        | Kind::TlsRoute
        | Kind::TcpRoute
        | Kind::ReferenceGrant
        | Kind::BackendTlsPolicy
        | Kind::ListenerSet
        | Kind::XBackendTrafficPolicy
        | Kind::XBackend
        | Kind::InferencePool
        | Kind::ServiceExport
        | Kind::ServiceImport => Some("config"),
    }
}

/// The trigger that istiod reports for a fact.
fn trigger(fact: &FactKey) -> &'static str {
    match fact {
        FactKey::Mesh | FactKey::TrustBundle => "global",
        FactKey::Networks => "networks",
        FactKey::Service(_) | FactKey::ServicesOfHost(_) | FactKey::AllServices => "service",
        FactKey::Endpoints(_) | FactKey::AddressNames | FactKey::Found(_) => "endpoint",
        FactKey::TargetsOf(_)
        | FactKey::TargetsAt(_)
        | FactKey::Workload(_)
        | FactKey::Learned(_) => "proxy",
        FactKey::Namespace(_) => "namespace",
        FactKey::SecretReader(_) => "secret",
        FactKey::Keys(_) => "config",

        FactKey::Object(name) | FactKey::Rollout(name) => of_object(name.kind),

        FactKey::Clusters => "cluster",
        FactKey::Remote(remote) => match &remote.1 {
            RemoteFact::Found(_) => "endpoint",
            RemoteFact::TargetsOf(_) | RemoteFact::TargetsAt(_) | RemoteFact::Workload(_) => {
                "proxy"
            }
            RemoteFact::SecretReader(_) => "secret",
            RemoteFact::Object(name) => of_object(name.kind),
            RemoteFact::List(kind, _) | RemoteFact::All(kind) => of_object(*kind),
        },

        FactKey::List(kind, _)
        | FactKey::ListAll(kind)
        | FactKey::Names(kind)
        | FactKey::NamesIn(kind, _) => of_object(*kind),
    }
}

/// The trigger that istiod reports for a kind.
fn of_object(kind: Kind) -> &'static str {
    if kind == Kind::Secret {
        "secret"
    } else {
        "config"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::object::{NamespacedName, ObjectRef};

    #[test]
    fn push_types_and_triggers_have_istios_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let object = |kind| ObjectRef {
            kind,
            name: NamespacedName::new("shop", "web"),
        };
        let removed = |kind| Change::Removed(object(kind));
        metrics.count_received(&[
            removed(Kind::Service),
            removed(Kind::EndpointSlice),
            removed(Kind::Gateway),
            removed(Kind::Pod),
        ]);

        metrics.observe_applied(Duration::from_millis(50), Duration::from_millis(5));
        metrics.pushed(
            triggers(&[
                FactKey::Mesh,
                FactKey::TrustBundle,
                FactKey::Object(object(Kind::Secret)),
            ]),
            3,
        );

        metrics.pushed(triggers(&[FactKey::AllServices]), 0);
        let sizes = EngineSizes {
            results: 7,
            facts: 3,
            attributes: 1,
            attribute_values: 1,
            subscribers: 1,
        };

        let reads = Reads {
            held: 4,
            computed: 9,
        };
        [3, 1, 2]
            .into_iter()
            .for_each(|pending| metrics.set_sizes(sizes, reads, pending));
        let missing = [
            Unavailable::Secret,
            Unavailable::Provider("zipkin"),
            Unavailable::Targets("no_matching_services"),
        ];
        metrics.failed(missing.map(|what| (what, 2)).into());

        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();

        for line in [
            "pilot_inbound_updates{type=\"svcdelete\"} 1",
            "pilot_inbound_updates{type=\"eds\"} 1",
            "pilot_inbound_updates{type=\"config\"} 1",
            "pilot_push_triggers{type=\"global\"} 3",
            "pilot_push_triggers{type=\"secret\"} 3",
            "pilot_debounce_time_bucket{le=\"0.1\"} 1",
            "pilot_pushcontext_init_seconds_bucket{le=\"0.01\"} 1",
            "xds_cache_size 7",
            "xds_cache_dependent_config_size 3",
            "xds_cache_reads{type=\"hit\"} 4",
            "xds_cache_reads{type=\"miss\"} 9",
            "endpoint_no_pod 2",
            "pilot_k8s_endpoints_pending_pod 2",
            "pilot_k8s_endpoints_with_no_pods 4",
            "pilot_sds_certificate_errors_total 2",
            "provider_lookup_cluster_failures{type=\"zipkin\"} 2",
            "pilot_k8s_proxies_with_no_service_targets{reason=\"no_matching_services\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }

        assert!(
            !text.contains("type=\"service\""),
            "nothing was sent for that:\n{text}"
        );
    }
}
