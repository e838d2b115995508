//! The effect of a change on traffic, as text: requests are walked through a proxy's resources
//! before and after.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ambient_traffic;
use super::client::Client;
use super::difference::CollectionDiff;
use super::evaluation::{Visit, allowing, policy_of, visitor};
use super::ingress::requires_certificate;
use super::labelled_request::ProxyInput;
use super::received::{ProxyResources, ReadResources, Walkable};
use super::wording::{Authority, outcome};
use navarch_push::context::PushContext;
use navarch_push::proxy::ProxyKind;
use navarch_push::resource::ResourceType;
use navarch_walk::policy::{Peer, TokenClaims, Verdict, verdict};
use navarch_walk::token::{Admission, admission};
use navarch_walk::{Connection, Entry, Resources, Walk};

/// A request with a different outcome.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrafficChange {
    /// The request, such as `GET reviews:9080/`.
    pub request: String,
    /// The sources: workloads as `namespace/name`.
    pub from: BTreeSet<String>,
    /// The outcome now.
    pub before: String,
    /// The outcome after the change.
    pub after: String,
}

/// The requests of one proxy with a different route or verdict, each with whether its own workload
/// sends it.
pub(super) fn changes(
    client: &Client,
    steps: &BTreeMap<ResourceType, CollectionDiff>,
    [before, after]: [&ProxyResources; 2],
    contexts: [&PushContext; 2],
    read: &mut ReadResources,
) -> Vec<(TrafficChange, bool)> {
    if client.proxy.kind == ProxyKind::Ztunnel {
        let changes = ambient_traffic::changes(client, steps, [before, after]);
        return changes.into_iter().map(|change| (change, false)).collect();
    }

    let mut before = Walkable::read(before, read);
    let mut after = Walkable::read(after, read);
    let requests = ProxyInput {
        client,
        steps,
        resources: [before.resources(), after.resources()],
        contexts,
    }
    .requests();
    let namespace = client.proxy.namespace.as_str();
    let mut found = Vec::new();

    for request in requests {
        let walks = [
            before.walk(&request.connection),
            after.walk(&request.connection),
        ];
        let requested = Authority {
            host: &request.host,
            port: request.port,
        };
        let texts = words(&walks, requested, namespace);
        let [was, is] = match request.connection.entry {
            // The verdict of the receiving proxy is reported at that proxy.
            Entry::Outbound => texts,
            Entry::Direct | Entry::Tunnel | Entry::Inbound => {
                let [was, is] = texts;
                [(&before, was), (&after, is)]
                    .map(|(at, text)| outcome_at(at.resources(), &request.connection, text))
            }
        };

        if was != is {
            let change = TrafficChange {
                request: request.label,
                from: BTreeSet::new(),
                before: was,
                after: is,
            };
            found.push((change, request.is_own));
        }
    }

    found
}

/// The outcome of a request without a token at a proxy, given where it would be routed.
fn outcome_at(resources: &Resources, connection: &Connection, text: String) -> String {
    let Some(chain) = resources.chain(connection) else {
        return text;
    };

    let peer = match connection.entry {
        // A client without a proxy has no identity, unless a certificate is required.
        Entry::Direct if !requires_certificate(chain) => Peer::Nobody,
        Entry::Inbound if connection.tls.is_none() => Peer::Nobody,
        Entry::Direct | Entry::Inbound | Entry::Tunnel | Entry::Outbound => Peer::Somebody,
    };

    let destination = connection.destination;
    let http = connection.http.as_ref();
    let visit = Visit {
        peer,
        source: None,
        remote: None,
        destination,
        http,
    };

    if let Some(Admission::Rejected { status, reason, .. }) =
        http.map(|request| admission(chain, request))
    {
        return format!("{status}: {reason}");
    }
    let verdict_for = |claims| verdict(chain, &visitor(&visit, claims));
    let verdict = verdict_for(TokenClaims::Absent);
    let end = if http.is_some() { "403" } else { "closed" };

    let token = if http.is_some() && verdict_for(TokenClaims::Unknown) != verdict {
        " without a token"
    } else {
        ""
    };

    let allowed = if connection.entry == Entry::Inbound {
        "allowed".to_owned()
    } else {
        text
    };

    match &verdict {
        Verdict::Passes => allowed,
        Verdict::Denied(rule) => {
            let policy = policy_of(rule).unwrap_or_else(|| rule.clone());
            format!("{end}{token} by {policy}")
        }
        Verdict::NotAllowed(rules) => format!("{end}{token}: not allowed by {}", allowing(rules)),
        Verdict::Unknown => format!("{allowed} where policies allow the client"),
    }
}

/// Both walks as text; if the texts are equal but endpoints differ, endpoints are counted.
fn words(walks: &[Walk; 2], requested: Authority<'_>, namespace: &str) -> [String; 2] {
    let texts = walks
        .each_ref()
        .map(|walk| outcome(walk, requested, namespace));
    let addresses = walks.each_ref().map(Walk::addresses);
    if texts[0] != texts[1] || addresses[0] == addresses[1] {
        return texts;
    }

    let [was, is] = addresses
        .each_ref()
        .map(|all| all.iter().collect::<BTreeSet<_>>());
    let count = |own: &BTreeSet<&String>, other: &BTreeSet<&String>| {
        let new = own.difference(other).count();
        let new = if new > 0 {
            format!(", {new} of them new")
        } else {
            String::new()
        };
        format!(
            "to {} endpoint{}{new}",
            own.len(),
            if own.len() == 1 { "" } else { "s" }
        )
    };

    let [first, second] = texts;
    [
        format!("{first} {}", count(&was, &is)),
        format!("{second} {}", count(&is, &was)),
    ]
}
