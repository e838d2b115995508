//! Whether ztunnel allows a request to a pod in ambient mode, by the policies that were sent to the
//! ztunnel on its node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use navarch_api::kubernetes::Pod;
use navarch_api::names::ResourceName;
use navarch_api::object::Object;
use navarch_proto::istio::security::Authorization;
use navarch_proto::istio::workload::address::Type;
use navarch_proto::istio::workload::{Address, Workload};
use navarch_push::context::PushContext;
use navarch_push::engine::Interest;
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::resource::ResourceType;
use navarch_registry::address_name::AddressName;
use navarch_walk::Transport;
use navarch_walk::policy::{Peer, TokenClaims, Verdict};
use navarch_walk::ztunnel::{Subject, verdict};
use prost::Message;
use serde_json::json;

use super::client::Client;
use super::evaluation::{Visit, peer_name, visitor};
use super::mirror::Mirror;
use super::received::{ProxyResources, find};
use super::why::WhyNot;
use super::why_not::{ProxySnapshot, TracedRequest};

/// Maximum number of pods in one answer for which the policies of a ztunnel that is not connected
/// are evaluated.
const MAX_PODS: usize = 16;
/// The name of the policy that is converted from STRICT PeerAuthentications.
const STRICT: &str = "istio_converted_static_strict";
const CONVERTED: &str = "converted_peer_authentication_";

/// A workload as it was sent to a ztunnel; `None` if it was not sent.
pub(super) fn workload_in(had: &ProxyResources, name: &ResourceName) -> Option<Workload> {
    let address = find(had, ResourceType::Address, name.as_str())
        .and_then(|resource| Address::decode(resource.body.clone()).ok());
    match address.and_then(|address| address.r#type) {
        Some(Type::Workload(workload)) => Some(workload),
        Some(Type::Service(_)) => None,
        None => Workload::decode(
            find(had, ResourceType::Workload, name.as_str())?
                .body
                .clone(),
        )
        .ok(),
    }
}

/// The verdict of policies on a connection to a workload.
pub(super) fn policy_verdict(
    workload: &Workload,
    policies: &[Authorization],
    visit: &Visit<'_>,
) -> Verdict {
    let subject = Subject {
        namespace: &workload.namespace,
        listed: &workload.authorization_policies,
    };
    verdict(policies, subject, &visitor(visit, TokenClaims::Absent))
}

/// All policies that a ztunnel has.
pub(super) fn policies_in(had: &ProxyResources) -> Vec<Authorization> {
    let all = had
        .get(&ResourceType::Authorization)
        .into_iter()
        .flat_map(|collection| &collection.resources);
    all.filter_map(|resource| Authorization::decode(resource.body.clone()).ok())
        .collect()
}

/// Evaluates ztunnel's policies for a request to a pod. Returns false if it is denied, with the
/// reason in `answer`.
pub(super) fn allows(
    answer: &mut WhyNot,
    pod: &Arc<Object<Pod>>,
    destination: SocketAddr,
    transport: Transport,
    request: &TracedRequest<'_>,
) -> bool {
    let cluster = &request.context.mesh.settings.cluster_id;
    let name = AddressName::Pod(pod.meta.key.clone()).to_resource_name(cluster);
    let node = pod.spec.node.as_deref().unwrap_or_default();
    let is_on_node = |place: &ProxySnapshot| place.proxy.meta("NODE_NAME").as_deref() == Some(node);
    let on_node = (request.others.ztunnels)()
        .into_iter()
        .filter(|place| !node.is_empty() && is_on_node(place));
    let sent = on_node
        .into_iter()
        .find_map(|place| known(&place.had, &name));

    if sent.is_none() {
        let of = if node.is_empty() {
            "its node".to_owned()
        } else {
            format!("node {node}")
        };
        answer.unknown_once(&format!(
            "what the ztunnel of {of} received: none is connected to this replica, so this is what it would receive"
        ));

        // What a ztunnel would receive is generated for each pod.
        if request.judged_by_ztunnel.get() == MAX_PODS {
            answer.unknown_once("whether ztunnel allows it at the other endpoints");
            return true;
        }
        request
            .judged_by_ztunnel
            .set(request.judged_by_ztunnel.get() + 1);
    }

    let Some((workload, policies)) = sent.or_else(|| received_workload(request.context, &name))
    else {
        answer
            .steps
            .push(format!("no ztunnel has a workload at {destination}"));
        return true;
    };

    let peer = match transport {
        Transport::Tunnel => Peer::Proven(request.identity),
        Transport::Plain | Transport::Tls | Transport::Mutual => Peer::Nobody,
    };
    let visit = Visit {
        peer,
        source: request.source,
        remote: request.remote,
        destination,
        http: None,
    };

    let who = peer_name(peer);

    match policy_verdict(&workload, &policies, &visit) {
        Verdict::Passes => {
            answer.first_step(
                "ztunnel accepts the connection for the pod at",
                &destination,
            );
            true
        }
        Verdict::Unknown => {
            answer.first_step(
                "ztunnel accepts the connection for the pod at",
                &destination,
            );
            answer.unknown_once("whether ztunnel allows it: a policy matches source addresses");
            true
        }
        Verdict::Denied(policy) => {
            answer.reason = Some(format!(
                "ztunnel at {destination} denies it to {who}: the connection is closed by {}",
                named(&policy)
            ));
            answer.advice = advice(&policy);
            false
        }
        Verdict::NotAllowed(policies) => {
            let policies: Vec<String> = policies.iter().map(|policy| named(policy)).collect();
            answer.reason = Some(format!(
                "ztunnel at {destination} allows it to others, not to {who}: the connection is closed"
            ));
            answer.advice = Some(format!(
                "policies with action ALLOW: {}; none of their rules matches, and ztunnel ignores those about requests",
                policies.join(", ")
            ));
            false
        }
    }
}

/// A workload with all policies, as sent to a ztunnel.
fn known(had: &ProxyResources, name: &ResourceName) -> Option<(Workload, Vec<Authorization>)> {
    Some((workload_in(had, name)?, policies_in(had)))
}

/// A workload as a newly connected ztunnel would receive it.
fn received_workload(
    context: &PushContext,
    name: &ResourceName,
) -> Option<(Workload, Vec<Authorization>)> {
    let id = "ztunnel~127.0.0.1~ztunnel.istio-system~istio-system.svc.cluster.local";
    let proxy = Proxy::parse(id, json!({}), Locality::default()).ok()?;
    let own = Interest {
        wildcard: false,
        names: Arc::new([name.clone()].into()),
    };
    let all = Interest {
        wildcard: true,
        ..Interest::default()
    };

    let interests = BTreeMap::from([
        (ResourceType::Address, own),
        (ResourceType::Authorization, all),
    ]);
    let proxy = Arc::new(Proxy {
        uses_delta: true,
        ..proxy
    });
    let mirror = Mirror::of(context, vec![Client { proxy, interests }]);

    known(&mirror.had(0), name)
}

/// The object of a ztunnel policy named `namespace/name`.
pub(super) fn named(policy: &str) -> String {
    let (namespace, name) = policy.split_once('/').unwrap_or(("", policy));
    match name.strip_prefix(CONVERTED) {
        Some(name) => format!("PeerAuthentication {namespace}/{name}"),
        None if name == STRICT => "a PeerAuthentication that is STRICT".to_owned(),
        None => format!("AuthorizationPolicy {policy}"),
    }
}

/// The advice for a policy that denies.
fn advice(policy: &str) -> Option<String> {
    let is_of_peers = policy.ends_with(STRICT) || policy.contains(CONVERTED);
    is_of_peers.then(|| {
        "the client must use mutual TLS: add it to the mesh, or set PERMISSIVE for this port"
            .to_owned()
    })
}
