//! The cost of a list: to decode it, to translate it for a proxy, and to change one element.

#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "test code: it indexes only what it has built"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use navarch::api::any_object::AnyObject;
use navarch::api::decode::{Outcome, decode_value};
use navarch::api::names::ResourceName;
use navarch::api::settings::Settings;
use navarch::api::validation::validate_any;
use navarch::envoy::EnvoyTranslator;
use navarch::push::engine::{Engine, Interest, PushCause, PushStats, Sink};
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use navarch_proto::envoy::config::listener::v3::Listener;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use nix::sys::resource::{UsageWho, getrusage};
use prost::Message;
use serde_json::{Value, json};

use super::cases::{Case, Reader};

/// The cost of a list of one length, in CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Decoding, validating and applying the objects.
    pub read: Duration,
    /// Computing all resources of a proxy that subscribes to everything, and the statuses of
    /// objects.
    pub shown: Duration,
    /// Decoding, applying and translating another version in which one element differs.
    pub edit: Duration,
    /// The engine's statistics of the edit.
    pub stats: PushStats,
}

/// The CPU time of this thread.
fn used() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the usage of a thread is readable");
    let of = |value: nix::sys::time::TimeVal| {
        let seconds = u64::try_from(value.tv_sec());
        let micros = u64::try_from(value.tv_usec());
        Duration::from_secs(seconds.unwrap_or_default())
            + Duration::from_micros(micros.unwrap_or_default())
    };
    of(usage.user_time()) + of(usage.system_time())
}

/// Runs a closure, and returns its result and the CPU time of this thread.
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let before = used();
    let value = run();
    (value, used().saturating_sub(before))
}

/// Discards pushes.
struct Discard;

impl Sink for Discard {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// Decodes objects as the sources do.
fn read(objects: &[Value]) -> Vec<Change> {
    let object = |value: &Value| -> AnyObject {
        match decode_value(value) {
            (
                _,
                Outcome::Read {
                    object,
                    unknown_fields,
                },
            ) if unknown_fields.is_empty() => object,
            (subject, outcome) => panic!("{subject:?}: {outcome:?}"),
        }
    };

    let objects = objects.iter().map(object);
    let checked = objects.inspect(|object| {
        let verdict = validate_any(object);
        assert!(verdict.is_valid(), "{:?}", verdict.errors.first());
    });

    checked.map(Change::Put).collect()
}

/// The proxy of a case.
fn proxy(reader: Reader) -> Arc<Proxy> {
    let (kind, app) = match reader {
        Reader::Sidecar => ("sidecar", "web"),
        Reader::Gateway => ("router", "gate"),
    };
    let metadata = json!({
        "NAMESPACE": "shop", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.32.0", "MESH_ID": "cluster.local",
        "SERVICE_ACCOUNT": "default", "INSTANCE_IPS": "10.0.0.1", "INTERCEPTION_MODE": "REDIRECT",
        "LABELS": { "app": app }, "NAME": "reader", "DNS_CAPTURE": "true",
    });
    let node = format!("{kind}~10.0.0.1~reader.shop~shop.svc.cluster.local");
    Arc::new(Proxy::parse(&node, metadata, Locality::default()).expect("the node is valid"))
}

/// The names of the RDS route configurations to which a listener refers.
fn routes_of(body: &[u8]) -> Vec<String> {
    let listener = Listener::decode(body).expect("an encoded listener can be decoded");
    let chains = listener
        .filter_chains
        .into_iter()
        .chain(listener.default_filter_chain);
    let filters = chains.flat_map(|chain| chain.filters);
    let typed = filters.filter_map(|filter| match filter.config_type {
        Some(navarch_proto::envoy::config::listener::v3::filter::ConfigType::TypedConfig(any)) => {
            Some(any)
        }
        _ => None,
    });

    let managers = typed.filter_map(|any| HttpConnectionManager::decode(&any.value[..]).ok());
    let names = managers.filter_map(|manager| match manager.route_specifier {
        Some(RouteSpecifier::Rds(rds)) => Some(rds.route_config_name),
        _ => None,
    });

    names.collect()
}

/// Measures the cost of a list of this length.
pub fn measure(case: &Case, length: usize) -> Cost {
    let first = (case.objects)(length, 0);
    let second = (case.objects)(length, 1);
    let mut state = MeshState::new(Settings::default());
    let (_, read_time) = timed(|| state.apply(read(&first)));
    let (mut engine, shown) = timed(|| {
        let mut engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));
        let id = engine.connect(proxy(case.reader), Arc::new(Discard));
        let everything = Interest {
            wildcard: true,
            ..Interest::default()
        };

        for resource_type in [
            ResourceType::Cluster,
            ResourceType::Listener,
            ResourceType::NameTable,
        ] {
            engine.subscribe(id, resource_type, everything.clone());
        }

        let named = |names: BTreeSet<ResourceName>| Interest {
            wildcard: false,
            names: Arc::new(names),
        };
        let all = |resource_type| {
            engine
                .published(id, resource_type)
                .map(|all| all.resources.clone())
                .unwrap_or_default()
        };

        let clusters = all(ResourceType::Cluster)
            .iter()
            .map(|cluster| cluster.name.clone())
            .collect();
        let listeners = all(ResourceType::Listener);
        let routes = listeners
            .iter()
            .flat_map(|listener| routes_of(&listener.body))
            .map(ResourceName::new)
            .collect();

        engine.subscribe(id, ResourceType::Endpoint, named(clusters));
        engine.subscribe(id, ResourceType::ObjectStatus, everything);
        engine.subscribe(id, ResourceType::Route, named(routes));
        engine
    });

    // Sources send no event for objects that did not change.
    let changed = second
        .iter()
        .enumerate()
        .filter(|(place, object)| first.get(*place) != Some(*object));
    let changed: Vec<Value> = changed.map(|(_, object)| object.clone()).collect();
    let (stats, edit) = timed(|| {
        let facts = state.apply(read(&changed));
        if facts.is_empty() {
            PushStats::default()
        } else {
            engine.apply(state.context(), facts)
        }
    });

    Cost {
        read: read_time,
        shown,
        edit,
        stats,
    }
}
