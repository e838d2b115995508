//! `/debug/why/…`: the causes of a proxy's resource, the causes of its last pushes, and why its
//! requests fail.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::oneshot;

use super::plan::client;
use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::STACK;
use navarch_answers::ambient;
use navarch_answers::fields::{Effect, effects};
use navarch_answers::mirror::Mirror;
use navarch_answers::received::ProxyResources;
use navarch_answers::why::{
    FieldsKnown, ProxyScope, Pushed, ResourceProvenance, SourceObject, WhyProxy, WhyPush,
};
use navarch_answers::why_not::{Origin, Others, ProxySnapshot, Request, why_not};
use navarch_api::names::ResourceName;
use navarch_api::object::{NamespacedName, ObjectRef};
use navarch_base::resource_version::Version;
use navarch_net::background;
use navarch_push::context::{PushContext, facts_of};
use navarch_push::engine::ProxyId;
use navarch_push::fact::FactKey;
use navarch_push::proxy::{Proxy, ProxyKind};
use navarch_push::resource::ResourceType;
use navarch_push::worker::{ChangedObject, Inspect, PushRecord};
use navarch_walk::token::Claims;
use navarch_xds::connections::{ConnectionInfo, PushInfo};

/// Maximum number of causes shown per push.
const MAX_CAUSES: usize = 8;
/// Maximum size of a token's claims as JSON, in bytes.
const MAX_CLAIMS_BYTES: usize = 8 << 10;

/// The step of requests whose proxy may not have their cluster yet.
const ON_DEMAND: &str = "the proxy has a learned scope: if it has no cluster for this request yet, it \
                         requests the cluster first";

/// The effects of objects on a resource, as far as known.
type Effects = BTreeMap<ObjectRef, Effect>;

/// The newest stream of the requested `proxy`, as `<pod>.<namespace>`.
fn proxy(state: &AdminState, parameters: &Parameters) -> Result<ConnectionInfo, Box<Response>> {
    let name = parameters
        .get("proxy")
        .map(String::as_str)
        .unwrap_or_default();
    let found = state.connections.of_proxy(name).pop();
    let missing = || {
        (
            StatusCode::NOT_FOUND,
            format!("proxy {name:?} is not connected to this replica\n"),
        )
            .into_response()
    };
    found.ok_or_else(|| Box::new(missing()))
}

/// The objects behind the resources with the name `resource`, of the type `type` or of all types.
pub(super) async fn proxy_resource(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let info = match proxy(&state, &parameters) {
        Ok(info) => info,
        Err(answer) => return *answer,
    };
    let wanted = parameters.get("type").cloned();
    let name = ResourceName::new(
        parameters
            .get("resource")
            .map(String::as_str)
            .unwrap_or_default(),
    );

    let id = info.proxy_id;
    let is_wanted = move |resource_type: &ResourceType| {
        wanted
            .as_ref()
            .is_none_or(|wanted| resource_type.short_name() == wanted)
    };

    let looked = state.push.inspect(move |inspect| {
        let made = |resource_type| {
            let resource = inspect
                .engine
                .published(id, resource_type)?
                .resources
                .find(&name)?
                .clone();
            let facts = inspect.engine.provenance_in_order(id, resource_type, &name);
            Some((resource_type, resource.version, facts))
        };

        ResourceType::ALL
            .into_iter()
            .filter(is_wanted)
            .filter_map(made)
            .collect::<Vec<_>>()
    });

    let Ok(looked) = looked.await else {
        return reply::ended();
    };

    let context = state.push.context();
    let name = parameters.get("resource").cloned().unwrap_or_default();

    if looked.is_empty() {
        return (
            StatusCode::NOT_FOUND,
            format!("{} has no resource {name:?}\n", info.id),
        )
            .into_response();
    }

    let mut resources = Vec::new();

    for (resource_type, version, facts) in looked {
        let objects = objects_behind(&context, &facts);
        let effects = if parameters.contains_key("fields") {
            let resource = ResourceName::new(&name);
            let shown = objects.clone();
            Some(
                effects_on(
                    &state,
                    &context,
                    &info,
                    resource_type,
                    resource,
                    version,
                    shown,
                )
                .await,
            )
        } else {
            None
        };
        let objects = inputs_of(&context, &objects, &facts, effects.as_ref());
        let version = version.to_string();

        resources.push(ResourceProvenance {
            r#type: resource_type.short_name().to_owned(),
            name: name.clone(),
            version,
            objects,
        });
    }

    reply::json(
        &parameters,
        &json!(WhyProxy {
            proxy: info.id.to_string(),
            resources
        }),
    )
}

/// The effects of objects on a proxy's resource; empty while another query is computed.
async fn effects_on(
    state: &AdminState,
    context: &Arc<PushContext>,
    info: &ConnectionInfo,
    resource_type: ResourceType,
    name: ResourceName,
    version: Version,
    objects: Vec<ObjectRef>,
) -> Effects {
    // Copies of the state have no secrets.
    let turn = state
        .plans
        .turn()
        .ok()
        .filter(|_| resource_type != ResourceType::Secret);
    let Some(turn) = turn else {
        return Effects::new();
    };

    let context = context.clone();
    let client = client(info);
    let (answer, found) = oneshot::channel();
    let work = move || {
        // The caller may have disconnected.
        let known = effects(&context, &client, resource_type, &name, version, &objects);
        _ = answer.send(known);
        drop(turn);
    };

    match background::spawn("why proxy", STACK, work) {
        Ok(()) => found.await.unwrap_or_default(),
        Err(_) => Effects::new(),
    }
}

/// The objects of facts without duplicates, in order, without those that do not exist.
fn objects_behind(context: &PushContext, facts: &[FactKey]) -> Vec<ObjectRef> {
    let mut seen = BTreeSet::new();
    let named = facts.iter().flat_map(|fact| objects_of(context, fact));
    named
        .filter(|name| context.objects.contains(name) && seen.insert(name.clone()))
        .collect()
}

/// Objects and other inputs, with their effects if requested.
fn inputs_of(
    context: &PushContext,
    objects: &[ObjectRef],
    facts: &[FactKey],
    effects: Option<&Effects>,
) -> Vec<SourceObject> {
    let objects = objects.iter().map(|name| {
        let generation = context
            .objects
            .any(name)
            .map(|object| object.meta().generation);
        let field = match effects.map(|effects| effects.get(name)) {
            None => FieldsKnown::Unasked,
            Some(Some(Effect::None)) => FieldsKnown::NoEffect,
            Some(Some(Effect::Fields(fields))) if !fields.is_empty() => {
                FieldsKnown::Fields(fields.clone())
            }
            Some(Some(Effect::Fields(_)) | None) => FieldsKnown::Unknown,
        };

        SourceObject {
            object: name.to_string(),
            generation,
            field,
        }
    });

    let input = |object| SourceObject {
        object,
        generation: None,
        field: FieldsKnown::Unasked,
    };
    let mut seen = BTreeSet::new();
    let others = facts
        .iter()
        .filter_map(other_input)
        .filter(|name| seen.insert(name.clone()));

    objects.chain(others.map(input)).collect()
}

/// The objects of a fact. Facts about lists of names or about everything do not identify an object.
fn objects_of(context: &PushContext, fact: &FactKey) -> Vec<ObjectRef> {
    if let FactKey::Object(name) = fact {
        vec![name.clone()]
    } else if let FactKey::Service(key) = fact {
        let services = context.directory.services.get(key);
        services
            .into_iter()
            .flat_map(|all| all.iter())
            .map(|service| service.origin.clone())
            .collect()
    } else if let FactKey::List(kind, namespace) = fact {
        context
            .objects
            .all_of(*kind)
            .filter(|name| name.name.namespace == *namespace)
            .collect()
    } else {
        Vec::new()
    }
}

/// An input that is not an object, as text.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others are objects, or lists"
)]
pub(crate) fn other_input(fact: &FactKey) -> Option<String> {
    match fact {
        FactKey::Mesh => Some("mesh config".to_owned()),
        FactKey::Networks => Some("mesh networks".to_owned()),
        FactKey::TrustBundle => Some("the roots of trust".to_owned()),
        FactKey::Endpoints(key) => Some(format!("endpoints of {}", key.hostname)),
        FactKey::Workload(pod) => Some(format!("Pod {pod}")),
        FactKey::TargetsOf(pod) => Some(format!("the services of Pod {pod}")),
        FactKey::Learned(workload) => Some(format!("hosts that {workload} has used")),
        FactKey::Namespace(namespace) => Some(format!("labels of Namespace {namespace}")),
        _ => None,
    }
}

/// The last pushes of a proxy, newest first.
pub(super) async fn push(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let info = match proxy(&state, &parameters) {
        Ok(info) => info,
        Err(answer) => return *answer,
    };
    let id = info.proxy_id;
    let sent = state.connections.pushes(&info.id);
    let requested = clusters_by_name(&info);
    let looked = state.push.inspect(move |inspect| {
        let describe = |one: &PushInfo| pushed(inspect, id, one);
        let pushes: Vec<Pushed> = sent.iter().rev().map(describe).collect();
        let counted = requested.map(|names| inspect.engine.scoped_clusters(id, names));
        (pushes, counted.map(ProxyScope::from))
    });
    let Ok((pushes, scope)) = looked.await else {
        return reply::ended();
    };

    reply::json(
        &parameters,
        &json!(WhyPush {
            proxy: info.id.to_string(),
            scope,
            pushes
        }),
    )
}

/// The clusters that a sidecar with a learned scope has requested by name; `None` for other proxies.
fn clusters_by_name(info: &ConnectionInfo) -> Option<Arc<BTreeSet<ResourceName>>> {
    if !info.proxy.has_learned_scope {
        return None;
    }
    let mut types = info.types.iter();
    let clusters = types.find(|watch| watch.resource_type == ResourceType::Cluster);
    Some(
        clusters
            .map(|watch| watch.names.clone())
            .unwrap_or_default(),
    )
}

/// One push with its causes.
fn pushed(inspect: &Inspect<'_>, proxy: ProxyId, sent: &PushInfo) -> Pushed {
    let mut causes = Vec::new();
    if sent.answers {
        causes.push("its subscription".to_owned());
    }

    if let Some([first, last]) = sent.changes {
        let mut known = false;
        for push in inspect
            .pushes
            .iter()
            .filter(|push| (first..=last).contains(&push.revision))
        {
            known = true;
            causes.extend(causes_in(inspect, push, proxy, sent.resource_type));
        }
        if !known {
            causes.push("a change that is no longer recorded".to_owned());
        }
    }

    let more = causes.len().saturating_sub(MAX_CAUSES);
    causes.truncate(MAX_CAUSES);
    if more > 0 {
        causes.push(format!("{more} more"));
    }

    Pushed {
        at: sent.at.to_string(),
        r#type: sent.resource_type.short_name().to_owned(),
        causes,
        resources: sent.count,
        removed: sent.removed,
        bytes: sent.bytes,
        answered_ms: sent.answer.map(|(after, _)| after.as_secs_f64() * 1000.0),
        taken: sent.answer.map(|(_, is_taken)| is_taken),
    }
}

/// The objects of a push that affect a proxy's type. Removed objects affect no proxy any more: each
/// is a possible cause.
fn causes_in(
    inspect: &Inspect<'_>,
    push: &PushRecord,
    proxy: ProxyId,
    resource_type: ResourceType,
) -> Vec<String> {
    let objects = &inspect.engine.context().objects;
    let reaches = |name: &ObjectRef| {
        let Some(object) = objects.any(name) else {
            return true;
        };
        inspect
            .engine
            .affected_proxies(&facts_of(&object))
            .get(&proxy)
            .is_some_and(|types| types.contains(&resource_type))
    };

    let changed = |ChangedObject {
                       name, generation, ..
                   }: &ChangedObject| match generation {
        Some(0) => name.to_string(),
        Some(generation) => format!("{name} generation {generation}"),
        None => format!("{name} removed"),
    };

    let reaching: Vec<String> = push
        .objects
        .iter()
        .filter(|resource| reaches(&resource.name))
        .map(changed)
        .collect();

    match (reaching.is_empty(), push.objects.is_empty()) {
        (false, _) => reaching,
        (true, false) => push.objects.iter().map(changed).collect(),
        (true, true) => push
            .changed
            .iter()
            .take(MAX_CAUSES)
            .map(|fact| format!("{fact:?}"))
            .collect(),
    }
}

/// The claims of a token: a JSON object, as its payload is one.
fn read_claims(text: &str) -> Result<Claims, String> {
    if text.len() > MAX_CLAIMS_BYTES {
        return Err(format!(
            "claims must have at most {MAX_CLAIMS_BYTES} bytes\n"
        ));
    }
    serde_json::from_str(text).map_err(|error| {
        format!("claims must be a JSON object, as in {{\"iss\": \"…\"}}: {error}\n")
    })
}

/// The request that the parameters describe; the error is the reason why they do not.
fn read_request(parameters: &Parameters) -> Result<Request, String> {
    let text = |name: &str, usual: &str| {
        parameters
            .get(name)
            .cloned()
            .unwrap_or_else(|| usual.to_owned())
    };
    let port = parameters
        .get("port")
        .map(|port| port.parse::<u16>())
        .transpose()
        .map_err(|_| "port must be a number\n".to_owned())?;
    let claims = parameters
        .get("claims")
        .filter(|claims| !claims.is_empty())
        .map(|claims| read_claims(claims))
        .transpose()?;

    Ok(Request {
        host: text("host", ""),
        port,
        method: text("method", "GET"),
        path: text("path", "/"),
        headers: BTreeMap::new(),
        claims,
        to_all: false,
    })
}

/// Why a request of the proxy's workload, or one that enters at a gateway, fails. The request is
/// described by `host`, `port`, `path`, `method` and the `claims` of its token.
pub(super) async fn not(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let context = state.push.context();
    let mut learning = None;
    let mut origin = match proxy(&state, &parameters) {
        Ok(info) => {
            learning = info.proxy.has_learned_scope.then(|| client(&info));
            Origin::Proxy(place(&info))
        }
        Err(answer) => match ambient_pod(&context, &parameters) {
            Some(pod) => Origin::Ambient(Arc::new(pod)),
            None => return *answer,
        },
    };

    let request = match read_request(&parameters) {
        Ok(request) => request,
        Err(reason) => return (StatusCode::BAD_REQUEST, reason).into_response(),
    };

    let others: BTreeMap<IpAddr, ConnectionInfo> = {
        let all = state.connections.list().into_iter();
        all.filter_map(|other| Some((*other.proxy.ips.first()?, other)))
            .collect()
    };

    let Ok(turn) = state.plans.turn() else {
        return (
            StatusCode::TOO_MANY_REQUESTS,
            "another request is in progress; try again",
        )
            .into_response();
    };

    let (answer, found) = oneshot::channel();
    let is_learning = learning.is_some();
    let work = move || {
        if let (Origin::Proxy(from), Some(client)) = (&mut origin, learning) {
            add_on_demand(from, Mirror::of(&context, vec![client]).had(0));
        }

        let at = |ip: IpAddr| others.get(&ip).map(place);
        let of_kind = |kind: ProxyKind| -> Vec<ProxySnapshot> {
            others
                .values()
                .filter(|one| one.proxy.kind == kind)
                .map(place)
                .collect()
        };

        let waypoints = || of_kind(ProxyKind::Waypoint);
        let ztunnels = || of_kind(ProxyKind::Ztunnel);
        let others = Others {
            at: &at,
            waypoints: &waypoints,
            ztunnels: &ztunnels,
            read: &RefCell::default(),
        };
        let mut reason = why_not(&context, &origin, &request, others);
        if is_learning {
            reason.steps.insert(0, ON_DEMAND.to_owned());
        }

        drop(turn);

        // The caller may have disconnected.
        _ = answer.send(reason);
    };

    if let Err(error) = background::spawn("why not", STACK, work) {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }

    match found.await {
        Ok(found) => reply::json(&parameters, &json!(found)),
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed to compute the answer; see the log",
        )
            .into_response(),
    }
}

/// Adds the clusters of all routes to those of a proxy with a learned scope, which requests them when
/// a request needs them. `all` is what a mirror of the proxy has.
pub(super) fn add_on_demand(from: &mut ProxySnapshot, mut all: ProxyResources) {
    for resource_type in [ResourceType::Cluster, ResourceType::Endpoint] {
        if let Some(collection) = all.remove(&resource_type) {
            from.had.insert(resource_type, collection);
        }
    }
}

/// The ambient pod of the name `proxy` as `<pod>.<namespace>`, which has no proxy of its own.
fn ambient_pod(context: &PushContext, parameters: &Parameters) -> Option<Proxy> {
    let (pod, namespace) = parameters.get("proxy")?.rsplit_once('.')?;
    ambient(context, &NamespacedName::new(namespace, pod))
}

/// A proxy and its resources.
pub(super) fn place(info: &ConnectionInfo) -> ProxySnapshot {
    let had = info
        .types
        .iter()
        .filter_map(|watch| Some((watch.resource_type, watch.resources.clone()?)))
        .collect();
    ProxySnapshot {
        proxy: info.proxy.clone(),
        had,
    }
}
