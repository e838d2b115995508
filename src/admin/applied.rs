//! `/debug/applied`: which proxies have acknowledged an object, which have not answered, and which
//! rejected it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::json;

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::applied::{Applied, NAMED, PendingProxy, RejectingProxy};
use navarch_answers::proposal::object_ref;
use navarch_api::any_object::AnyObject;
use navarch_push::context::facts_of;
use navarch_push::engine::ProxyId;
use navarch_push::progress::{Compared, changed_at};
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::worker::{Ended, Inspect, PushHandle};
use navarch_xds::connections::{ConnectionInfo, Connections};

/// Number of objects that are looked up before the push thread continues its work.
const LOOKUP_BATCH: usize = 32;

/// The distribution progress of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Distribution {
    /// Number of proxies with a resource that depends on it.
    pub(super) reached: usize,
    /// The proxies that have not acknowledged its last change, with the types.
    pub(super) unacknowledged: BTreeMap<ProxyId, Vec<ResourceType>>,
}

/// The acknowledged collections of proxies, with their snapshots.
type Acknowledged = BTreeMap<(ProxyId, ResourceType), (Arc<Collection>, u64)>;

/// The progress of these objects. A proxy has acknowledged an object if, for every type with a
/// resource that depends on the object, it has acknowledged the current collection, or one after
/// the object's last change.
pub(super) async fn distribution(
    push: &PushHandle,
    connections: &Connections,
    objects: Vec<AnyObject>,
) -> Result<Vec<(AnyObject, Distribution)>, Ended> {
    let mut all = Vec::with_capacity(objects.len());
    for some in objects.chunks(LOOKUP_BATCH) {
        // Read before the engine: ACKs in between do not count yet.
        let taken = taken(&connections.list());
        let some = some.to_vec();
        let looked = push.inspect(move |inspect| {
            let look = |object: AnyObject| {
                let progress = of_one(inspect, &object, &taken);
                (object, progress)
            };
            some.into_iter().map(look).collect::<Vec<_>>()
        });
        all.extend(looked.await?);
    }
    Ok(all)
}

/// The acknowledged collections by type.
fn taken(connections: &[ConnectionInfo]) -> Acknowledged {
    let of_one = |info: &ConnectionInfo| {
        let id = info.proxy_id;
        info.types
            .iter()
            .filter_map(move |watch| Some(((id, watch.resource_type), watch.taken.clone()?)))
            .collect::<Vec<_>>()
    };
    connections.iter().flat_map(of_one).collect()
}

/// The progress of one object.
fn of_one(inspect: &Inspect<'_>, object: &AnyObject, taken: &Acknowledged) -> Distribution {
    let reached = inspect.engine.affected_proxies(&facts_of(object));
    let changed_at = changed_at(inspect, &object.object_ref());
    let mut compared = Compared::default();
    let mut has = |proxy: ProxyId, resource_type: ResourceType| {
        let Some((collection, revision)) = taken.get(&(proxy, resource_type)) else {
            return false;
        };
        let mut is_shown = || {
            inspect
                .engine
                .published(proxy, resource_type)
                .is_some_and(|shown| compared.are_equal(&shown, collection))
        };
        *revision >= changed_at || is_shown()
    };

    let mut behind = BTreeMap::new();

    for (proxy, types) in &reached {
        // Resources for the control plane itself are acknowledged by no client.
        let types = types
            .iter()
            .filter(|resource_type| **resource_type != ResourceType::ObjectStatus);
        let missing: Vec<ResourceType> = types
            .filter(|resource_type| !has(*proxy, **resource_type))
            .copied()
            .collect();
        if !missing.is_empty() {
            behind.insert(*proxy, missing);
        }
    }

    let is_client = |types: &std::collections::BTreeSet<ResourceType>| {
        types
            .iter()
            .any(|resource_type| *resource_type != ResourceType::ObjectStatus)
    };
    Distribution {
        reached: reached.values().filter(|types| is_client(types)).count(),
        unacknowledged: behind,
    }
}

/// The progress of the object of `object=KIND/NAMESPACE/NAME`.
pub(super) async fn applied(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let name = match object_ref(
        parameters
            .get("object")
            .map(String::as_str)
            .unwrap_or_default(),
    ) {
        Ok(name) => name,
        Err(reason) => return (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response(),
    };

    if !name.kind.group().ends_with(".istio.io") {
        let text = format!(
            "{} is not an Istio kind; acknowledgements are tracked for Istio kinds only\n",
            name.kind.as_str()
        );
        return (StatusCode::BAD_REQUEST, text).into_response();
    }

    // Read before the engine, whose snapshot is not older.
    let context = state.push.context();
    let quarantined = context.quarantined.get(&name);
    if let Some(one) = quarantined.filter(|one| one.served.is_none()) {
        let applied = Applied {
            generation: one.generation,
            quarantined: Some(one.message.to_string()),
            ..Applied::default()
        };
        return reply::json(&parameters, &json!(applied));
    }

    let rollout = context
        .rollouts
        .get(&name)
        .map(|rollout| state.rollouts.state(&name, rollout));
    let Some(object) = context
        .objects
        .any(&name)
        .or_else(|| context.new_versions.any(&name))
    else {
        return reply::text(StatusCode::NOT_FOUND, &format!("{name} not found\n"));
    };

    let generation = object.meta().generation;
    let Ok(progress) = distribution(&state.push, &state.connections, vec![object]).await else {
        return reply::ended();
    };

    let Some((_, progress)) = progress.into_iter().next() else {
        return reply::ended();
    };

    let mut applied = report(&state.connections.list(), generation, &progress);
    if let Some(one) = quarantined {
        applied.generation = one.generation;
        applied.quarantined = Some(one.message.to_string());
    }

    applied.rollout = rollout;
    reply::json(&parameters, &json!(applied))
}

/// The same for display: proxies by name, and the errors of those that rejected it.
fn report(connections: &[ConnectionInfo], generation: i64, progress: &Distribution) -> Applied {
    let mut applied = Applied {
        generation,
        reached: progress.reached,
        taken: progress.reached - progress.unacknowledged.len(),
        ..Applied::default()
    };

    let now = Timestamp::now();
    let by_id: BTreeMap<ProxyId, &ConnectionInfo> = connections
        .iter()
        .map(|info| (info.proxy_id, info))
        .collect();

    for (proxy, types) in &progress.unacknowledged {
        let Some(info) = by_id.get(proxy) else {
            // It disconnected in the meantime.
            applied.reached -= 1;
            continue;
        };

        let name = info.proxy.name.to_string();
        let watches = || {
            info.types
                .iter()
                .filter(|watch| types.contains(&watch.resource_type))
        };
        if let Some((resource_type, rejected)) =
            watches().find_map(|watch| Some((watch.resource_type, watch.rejected.clone()?)))
        {
            applied.refused += 1;
            if applied.refused_proxies.len() < NAMED {
                let r#type = resource_type.short_name().to_owned();
                let said = rejected.message.to_string();
                applied.refused_proxies.push(RejectingProxy {
                    proxy: name,
                    r#type,
                    said,
                });
            }

            continue;
        }

        applied.pending += 1;

        if applied.pending_proxies.len() < NAMED {
            let waits = watches().filter(|watch| {
                watch.sent.as_ref().map(|sent| &sent.nonce)
                    != watch.acked.as_ref().map(|acked| &acked.nonce)
            });
            let sent = waits
                .filter_map(|watch| watch.sent.as_ref().map(|sent| sent.at))
                .min();
            let since_seconds = sent.map(|at| now.duration_since(at).as_secs_f64());

            let types = types
                .iter()
                .map(|resource_type| resource_type.short_name().to_owned())
                .collect();
            applied.pending_proxies.push(PendingProxy {
                proxy: name,
                types,
                since_seconds,
            });
        }
    }

    applied
}
