//! `/debug/view/edges`: which workloads of a namespace call which services, which calls were denied,
//! and which are allowed and were never made.
//!
//! The control plane counts no calls: the evidence is the body of the request, as `navarch scope -o
//! json` prints it. It is not kept. Whoever may see all debug pages may ask, as the answer has
//! nothing that these and the evidence do not have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::rows::{Rows, fits};
use crate::admin::plan::client;
use crate::admin::reply::{self, Parameters};
use crate::admin::state::AdminState;
use crate::admin::why::{add_on_demand, place};
use navarch_answers::STACK;
use navarch_answers::mirror::Mirror;
use navarch_answers::why_not::ProxySnapshot;
use navarch_net::background;
use navarch_push::context::PushContext;
use navarch_push::proxy::{Proxy, ProxyKind};
use navarch_scope::edges::{EdgeClass, Limits, Selection, Source, allowed, measured};
use navarch_scope::evidence::{Evidence, EvidenceError};
use navarch_scope::{Walks, WorkloadName};
use navarch_xds::connections::ConnectionInfo;

/// Maximum number of JSON objects and lists of the evidence. Each edge is one, and takes some hundred
/// bytes of memory, but as few as ten in a body: a list is read as an object without names.
const MAX_OBJECTS: usize = 300_000;
/// Maximum number of JSON values of the evidence beside the first of each object or list. An edge has
/// five. A value takes 32 bytes or more of memory while it is read, also under a name that is not known,
/// but as few as two in a body.
const MAX_FURTHER_VALUES: usize = 8 * MAX_OBJECTS;
/// Timeout of a body: others wait for it.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of edges of a response that are allowed and were never used. Each costs a walk.
const MAX_ALLOWED: usize = 200;
/// Maximum number of workloads whose proxies are read for them, and of those that are named.
const MAX_WORKLOADS: usize = 200;
/// Time after which no further edge is walked: other pages wait for it.
const MAX_TIME: Duration = Duration::from_secs(2);

/// The edges of `namespace`: of its workloads, and to its services. `workload` selects those of one
/// workload, `filter` those with its words, `offset` and `limit` some of those with calls. With
/// `allowed` the response also has edges that were never used.
///
/// Edges with calls cost in proportion to the evidence. Those that were never used cost for each
/// workload of the namespace what its proxy has, and for each of them a walk of a request. Both end
/// after [`MAX_WORKLOADS`] workloads, [`MAX_ALLOWED`] edges and [`MAX_TIME`], and one request is
/// computed at a time: others wait, a few of them with their evidence.
pub(in crate::admin) async fn edges(
    State(state): State<AdminState>,
    parameters: Parameters,
    request: Request,
) -> Response {
    if !is_json(request.headers()) {
        return (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send application/json\n",
        )
            .into_response();
    }

    let namespace = parameters.get("namespace").filter(|name| !name.is_empty());
    let Some(namespace) = namespace.cloned() else {
        return (StatusCode::BAD_REQUEST, "set the parameter namespace\n").into_response();
    };

    let Some(place) = state.turns.body().await else {
        return reply::ended();
    };
    let body = match timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => body,
        Ok(Err(rejection)) => return rejection.into_response(),
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "send the body faster\n").into_response(),
    };

    if has_many_values(&body) {
        let reason = "the evidence has too many edges: collect it for fewer namespaces\n";
        return (StatusCode::PAYLOAD_TOO_LARGE, reason).into_response();
    }

    // The page asks again before it has an answer, as soon as something else is selected.
    let Some(turn) = state.turns.turn().await else {
        return reply::ended();
    };

    let context = state.push.context();
    let connected = state.connections.list();
    let replica = state.pod.clone();
    let requested = parameters.clone();
    let (answer, made) = oneshot::channel();
    let work = move || {
        let found = read(&body).map(|evidence| {
            let mesh = ConnectedMesh {
                context,
                connected,
                replica,
            };
            mesh.edges(&namespace, evidence, &requested)
        });
        drop(body);
        drop(place);
        drop(turn);
        // The caller may have disconnected.
        _ = answer.send(found);
    };

    if let Err(error) = background::spawn("edges", STACK, work) {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }
    match made.await {
        Ok(Ok(found)) => reply::json(&parameters, &found),
        Ok(Err(error)) => {
            let reason = format!("the body {error}\n");
            reply::text(StatusCode::BAD_REQUEST, &reason)
        }
        Err(_) => {
            let reason = "failed to compute the edges; see the log\n";
            (StatusCode::INTERNAL_SERVER_ERROR, reason).into_response()
        }
    }
}

/// Whether a body is declared as JSON. A form on a page of another site cannot do so.
fn is_json(headers: &HeaderMap) -> bool {
    let declared = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media = declared.and_then(|declared| declared.split(';').next());
    media.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

/// Whether a body may have more JSON values than are read. Names of hosts have neither braces nor commas,
/// and few have brackets.
fn has_many_values(body: &[u8]) -> bool {
    let mut begun = 0;
    let mut further = 0;
    for byte in body {
        match byte {
            b'{' | b'[' => begun += 1,
            b',' => further += 1,
            _ => {}
        }
    }
    begun > MAX_OBJECTS || further > MAX_FURTHER_VALUES
}

/// The evidence in a body; `None` if there is no body.
fn read(body: &[u8]) -> Result<Option<Evidence>, EvidenceError> {
    if body.is_empty() {
        return Ok(None);
    }
    Evidence::parse(body).map(Some)
}

/// A snapshot, and the proxies that are connected to this replica.
struct ConnectedMesh {
    context: Arc<PushContext>,
    connected: Vec<ConnectionInfo>,
    /// The name of this replica.
    replica: Arc<str>,
}

impl ConnectedMesh {
    /// The response. Without evidence no edge has calls. Workloads without evidence, and what is allowed,
    /// are those of the sidecars of this replica, which it names: others would each have to get the
    /// evidence, and what they find of one workload would count twice.
    fn edges(&self, namespace: &str, evidence: Option<Evidence>, requested: &Parameters) -> Value {
        let is_read = evidence.is_some();
        let evidence = evidence.unwrap_or_default();
        let workload = requested.get("workload").filter(|name| !name.is_empty());
        let is_wanted = |from: &WorkloadName, to: &str| fits(requested, &[&from.to_string(), to]);
        let selection = Selection {
            namespace,
            workload: workload.map(String::as_str),
            is_wanted: &is_wanted,
        };

        let measured = measured(&self.context, &evidence, &selection);
        let of_class = |class| measured.iter().filter(|edge| edge.class == class).count();
        let counts = json!({
            "denied": of_class(EdgeClass::Denied), "used": of_class(EdgeClass::Used),
        });
        let rows = Rows::from_parameters(requested);
        let total = measured.len();
        let shown: Vec<Value> = rows
            .of(&measured)
            .into_iter()
            .map(|edge| json!(edge))
            .collect();

        let sources = self.sources(namespace);
        let unused = requested.contains_key("allowed");
        let unused = unused.then(|| self.allowed(&sources, &evidence, &selection));
        let mut answer = rows.answer(total, &shown);
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("namespace".to_owned(), json!(namespace));
            fields.insert("replica".to_owned(), json!(self.replica));
            fields.insert(
                "sidecars".to_owned(),
                json!(self.sidecars(namespace).count()),
            );
            fields.insert("isRead".to_owned(), json!(is_read));
            fields.insert("counts".to_owned(), counts);
            fields.insert("allowed".to_owned(), json!(unused));
            fields.extend(times(namespace, &evidence));
            fields.extend(workloads(namespace, &sources, &evidence));
        }
        answer
    }

    /// The connected sidecars of a namespace, with their indexes.
    fn sidecars(&self, namespace: &str) -> impl Iterator<Item = (usize, &ConnectionInfo)> {
        let all = self.connected.iter().enumerate();
        all.filter(move |(_, info)| {
            let proxy = &info.proxy;
            proxy.kind == ProxyKind::Sidecar && proxy.namespace.as_str() == namespace
        })
    }

    /// The newest sidecar of each workload of a namespace, by its index.
    fn sources(&self, namespace: &str) -> BTreeMap<WorkloadName, usize> {
        let mut sources = BTreeMap::new();
        for (index, info) in self.sidecars(namespace) {
            let name = WorkloadName::new(namespace, &self.workload_of(&info.proxy));
            if name.is_valid() {
                sources.insert(name, index);
            }
        }
        sources
    }

    /// The workload of a proxy: the owner of its pod, else the pod.
    fn workload_of(&self, proxy: &Proxy) -> String {
        let workload = self.context.workload_of(proxy);
        let name = workload.map(|workload| workload.name.to_string());
        name.filter(|name| !name.is_empty())
            .unwrap_or_else(|| proxy.workload_name().name.to_string())
    }

    /// The edges that are allowed and were never used, as JSON.
    fn allowed(
        &self,
        sources: &BTreeMap<WorkloadName, usize>,
        evidence: &Evidence,
        selection: &Selection<'_>,
    ) -> Value {
        let chosen = sources.iter().filter(|(name, _)| {
            let workload = selection.workload;
            workload.is_none_or(|workload| workload == name.name)
        });
        let mut chosen: Vec<Source> = chosen
            .map(|(name, proxy)| Source {
                name: name.clone(),
                proxy: *proxy,
            })
            .collect();
        let left_out = chosen.len().saturating_sub(MAX_WORKLOADS);
        chosen.truncate(MAX_WORKLOADS);

        let since = Instant::now();
        let limits = Limits {
            edges: MAX_ALLOWED,
            is_over: &|| since.elapsed() > MAX_TIME,
        };
        let walks = Walks::new(&self.context, self.snapshots(&chosen));
        let found = allowed(&walks, &chosen, evidence, selection, &limits);
        json!({
            "rows": found.edges, "refused": found.refused, "more": found.more,
            "moreWorkloads": found.more_workloads + left_out,
        })
    }

    /// What the connected proxies have, with the clusters that these sources would request on
    /// demand.
    fn snapshots(&self, sources: &[Source]) -> Vec<ProxySnapshot> {
        let mut snapshots: Vec<ProxySnapshot> = self.connected.iter().map(place).collect();
        let indexes = sources.iter().map(|source| source.proxy);
        let learning: Vec<(usize, &ConnectionInfo)> = indexes
            .filter_map(|index| Some((index, self.connected.get(index)?)))
            .filter(|(_, info)| info.proxy.has_learned_scope)
            .collect();
        if learning.is_empty() {
            return snapshots;
        }

        let clients = learning.iter().map(|(_, info)| client(info)).collect();
        let mirror = Mirror::of(&self.context, clients);
        for (at, (index, _)) in learning.into_iter().enumerate() {
            if let Some(snapshot) = snapshots.get_mut(index) {
                add_on_demand(snapshot, mirror.had(at));
            }
        }
        snapshots
    }
}

/// The time over which calls of the namespace were counted: `null` if it is not known.
fn times(namespace: &str, evidence: &Evidence) -> [(String, Value); 2] {
    let all = evidence.workloads.iter();
    let own = || {
        let own = all.clone().filter(|(name, _)| name.namespace == namespace);
        own.map(|(_, observed)| observed)
    };
    let since = own().filter_map(|observed| observed.since).min();
    let read = own().map(|observed| observed.read).max();
    [
        ("since".to_owned(), json!(since)),
        ("read".to_owned(), json!(read)),
    ]
}

/// The workloads of the namespace by name, those with evidence and those that are connected.
fn workloads(
    namespace: &str,
    sources: &BTreeMap<WorkloadName, usize>,
    evidence: &Evidence,
) -> [(String, Value); 2] {
    let mut all: BTreeMap<&str, bool> = sources
        .keys()
        .map(|name| (name.name.as_str(), false))
        .collect();
    let read = evidence.workloads.keys();
    let own = read.filter(|name| name.namespace == namespace);
    all.extend(own.map(|name| (name.name.as_str(), true)));

    let named: Vec<Value> = all
        .iter()
        .take(MAX_WORKLOADS)
        .map(|(name, is_read)| json!({ "name": name, "isRead": is_read }))
        .collect();
    let more = all.len().saturating_sub(named.len());
    [
        ("workloads".to_owned(), json!(named)),
        ("moreWorkloads".to_owned(), json!(more)),
    ]
}

#[cfg(test)]
mod tests {
    use navarch_api::names::ClusterId;
    use navarch_api::settings::Settings;
    use navarch_api::testing::objects;
    use navarch_push::mesh_state::{Change, MeshState, RemoteChange};
    use navarch_push::proxy::Locality;
    use navarch_scope::evidence::MAX_EDGE_EVIDENCE;

    use super::*;

    #[test]
    fn a_sidecar_of_another_cluster_is_one_of_the_workload_there() {
        let pod = "
apiVersion: v1
kind: Pod
metadata:
  name: db-0
  generateName: db-
  namespace: shop
  ownerReferences: [{ apiVersion: apps/v1, kind: StatefulSet, name: db, uid: u, controller: true }]
spec: { serviceAccountName: db, containers: [] }
status: { phase: Running, podIP: 10.0.0.1 }
";
        let mut state = MeshState::new(Settings::default());
        let east = RemoteChange::Reset(objects(pod));
        state.apply([Change::Remote(ClusterId::new("east"), east)]);
        let mesh = ConnectedMesh {
            context: state.context(),
            connected: Vec::new(),
            replica: Arc::from("istiod-1"),
        };

        let of_cluster = |cluster: &str| {
            let id = "sidecar~10.0.0.1~db-0.shop~shop.svc.cluster.local";
            let metadata = json!({ "CLUSTER_ID": cluster });
            let proxy = Proxy::parse(id, metadata, Locality::default()).unwrap();
            mesh.workload_of(&proxy)
        };
        assert_eq!(of_cluster("east"), "db");
        assert_eq!(of_cluster("Kubernetes"), "db-0");
    }

    #[test]
    fn a_body_of_small_values_is_rejected_and_a_large_mesh_is_not() {
        let edge = |number: usize| {
            let counts = json!({
                "requests": number, "connections": 0, "failed": 1, "denied": 0,
                "lastSeen": "2026-01-01T00:00:00Z",
            });
            format!("\"service-{number}.shop.svc.cluster.local\":{counts}")
        };
        let edges: Vec<String> = (0..100_000).map(edge).collect();
        let edges = edges.join(",");
        assert!(edges.len() > MAX_EDGE_EVIDENCE / 2);
        assert!(!has_many_values(edges.as_bytes()));

        let unknown_list = "0,".repeat(MAX_FURTHER_VALUES + 1);
        assert!(unknown_list.len() < MAX_EDGE_EVIDENCE);
        assert!(has_many_values(unknown_list.as_bytes()));
        let lists_for_objects = "\"a\":[]".repeat(MAX_OBJECTS + 1);
        assert!(has_many_values(lists_for_objects.as_bytes()));
    }
}
