//! `/debug/applied`: which proxies have acknowledged an object, which have not answered, and which
//! rejected it.

use std::collections::BTreeMap;

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
use navarch_push::progress::changed_at;
use navarch_push::resource::ResourceType;
use navarch_push::worker::{Ended, Inspect, PushHandle};
use navarch_xds::connections::{ConnectionInfo, Connections};
use navarch_xds::standing::{Answers, ObjectChange, Standing, Standings, Subscription};

/// Number of objects that are looked up before the push thread continues its work.
const LOOKUP_BATCH: usize = 32;

/// The distribution progress of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Distribution {
    /// Number of proxies with a resource that depends on it.
    pub(super) reached: usize,
    /// The proxies that have not acknowledged its last change, with the types.
    pub(super) unacknowledged: BTreeMap<ProxyId, Vec<ResourceType>>,
    /// Those of them that have rejected a resource that the change may be in, with its type.
    rejecting: BTreeMap<ProxyId, ResourceType>,
}

/// The progress of these objects. A proxy has acknowledged an object if, for every type with a
/// resource that depends on the object, it has acknowledged the current collection, or one after
/// the object's last change, but for rejected resources that the change is not in.
pub(super) async fn distribution(
    push: &PushHandle,
    connections: &Connections,
    objects: Vec<AnyObject>,
) -> Result<Vec<(AnyObject, Distribution)>, Ended> {
    let mut all = Vec::with_capacity(objects.len());
    for some in objects.chunks(LOOKUP_BATCH) {
        // Read before the engine: ACKs in between do not count yet.
        let answers = Answers::of(&connections.list());
        let some = some.to_vec();
        let looked = push.inspect(move |inspect| {
            let mut standings = Standings::new(inspect, &answers);
            let look = |object: AnyObject| {
                let progress = of_one(inspect, &object, &mut standings);
                (object, progress)
            };
            some.into_iter().map(look).collect::<Vec<_>>()
        });
        all.extend(looked.await?);
    }
    Ok(all)
}

/// The progress of one object.
fn of_one(
    inspect: &Inspect<'_>,
    object: &AnyObject,
    standings: &mut Standings<'_>,
) -> Distribution {
    let facts = facts_of(object);
    let change = ObjectChange {
        facts: &facts,
        revision: changed_at(inspect, &object.object_ref()),
    };
    let mut progress = Distribution::default();

    for (proxy, mut types) in inspect.engine.affected_proxies(&facts) {
        // Resources for the control plane itself are acknowledged by no client.
        types.remove(&ResourceType::ObjectStatus);
        if types.is_empty() {
            continue;
        }

        progress.reached += 1;
        for resource_type in types {
            let subscription = Subscription {
                proxy,
                resource_type,
            };
            let standing = standings.of(subscription, &change);
            if standing == Standing::Rejected {
                progress.rejecting.entry(proxy).or_insert(resource_type);
            }
            if standing != Standing::Acknowledged {
                let behind = progress.unacknowledged.entry(proxy).or_default();
                behind.push(resource_type);
            }
        }
    }

    progress
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
        let rejecting = progress.rejecting.get(proxy);
        let rejected = watches().find_map(|watch| {
            let rejected = watch.rejected.as_ref()?;
            (rejecting == Some(&watch.resource_type)).then_some((watch.resource_type, rejected))
        });
        if let Some((resource_type, rejected)) = rejected {
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
