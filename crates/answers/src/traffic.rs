//! What a change does to traffic, in words: requests are walked through what a proxy has before and after.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::client::Client;
use super::difference::Step;
use super::had::{Had, ReadRoutes, Walkable};
use super::question::Scene;
use super::words::outcome;
use navarch_push::context::PushContext;
use navarch_push::resource::ResourceType;
use navarch_walk::Walk;

/// A request that goes another way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrafficChange {
    /// The request, such as `GET reviews:9080/`.
    pub request: String,
    /// Whose requests: workloads as `namespace/name`.
    pub from: BTreeSet<String>,
    /// Where it goes now.
    pub before: String,
    /// Where it would go.
    pub after: String,
}

/// The requests of one proxy that go another way.
pub(super) fn changes(
    client: &Client,
    steps: &BTreeMap<ResourceType, Step>,
    [before, after]: [&Had; 2],
    contexts: [&PushContext; 2],
    read: &mut ReadRoutes,
) -> Vec<TrafficChange> {
    let mut before = Walkable::read(before, read);
    let mut after = Walkable::read(after, read);
    let questions = Scene { client, steps, resources: [before.resources(), after.resources()], contexts }.questions();
    let namespace = client.proxy.namespace.as_str();
    let mut found = Vec::new();
    for question in questions {
        let walks = [before.walk(&question.connection), after.walk(&question.connection)];
        let [was, is] = words(&walks, (&question.host, question.port), namespace);
        if was != is {
            found.push(TrafficChange { request: question.label, from: BTreeSet::new(), before: was, after: is });
        }
    }
    found
}

/// Both walks in words; where these are the same and the endpoints are others, those are counted.
fn words(walks: &[Walk; 2], asked: (&str, u16), namespace: &str) -> [String; 2] {
    let texts = walks.each_ref().map(|walk| outcome(walk, asked, namespace));
    let addresses = walks.each_ref().map(Walk::addresses);
    if texts[0] != texts[1] || addresses[0] == addresses[1] {
        return texts;
    }
    let [was, is] = addresses.each_ref().map(|all| all.iter().collect::<BTreeSet<_>>());
    let count = |own: &BTreeSet<&String>, other: &BTreeSet<&String>| {
        let new = own.difference(other).count();
        let new = if new > 0 { format!(", {new} of them not among the others") } else { String::new() };
        format!("to {} endpoint{}{new}", own.len(), if own.len() == 1 { "" } else { "s" })
    };
    let [first, second] = texts;
    [format!("{first} {}", count(&was, &is)), format!("{second} {}", count(&is, &was))]
}
