//! The proxies of this process by their state of a new version: sent, acknowledged, rejected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use navarch_api::any_object::AnyObject;
use navarch_api::names::Namespace;
use navarch_push::context::{PushContext, facts_of};
use navarch_push::engine::ProxyId;
use navarch_push::fact::FactKey;
use navarch_push::progress::{Compared, last_change};
use navarch_push::proxy::Proxy;
use navarch_push::quarantine::judgement::{Ballot, Judgement, MAX_WAIT, Subject, Verdict};
use navarch_push::quarantine::votes::{Answer, VoteCounter, Voter};
use navarch_push::quarantine::{excerpt, voter};
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::rollout::Rollout;
use navarch_push::worker::Inspect;
use navarch_xds::connections::ConnectionInfo;

use navarch_answers::rollout::NAMED;

/// The metadata key with the workload of a proxy.
const WORKLOAD_KEY: &str = "WORKLOAD_NAME";
/// Labels that identify the workload if the metadata does not; the first that is set applies.
const WORKLOAD_LABELS: [&str; 3] = [
    "service.istio.io/canonical-name",
    "app.kubernetes.io/name",
    "app",
];

/// Proxies and types with a rejected response.
pub(super) type Refusing = BTreeSet<(ProxyId, ResourceType)>;

/// Numbers of proxies by their state of a new version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProxyCounts {
    /// Proxies that see the new version and get a resource that depends on it.
    pub(super) reached: usize,
    /// Proxies that have acknowledged it.
    pub(super) taken: usize,
    /// Proxies that have not answered yet.
    pub(super) pending: usize,
    /// The first of the pending proxies.
    pub(super) pending_proxies: Vec<String>,
    /// Why it is stopped: proxies that decide reject it, with the error of one.
    pub(super) refused: Option<String>,
    /// The first proxy that rejects it, with its error, if that does not decide.
    pub(super) contested: Option<String>,
}

/// A proxy that sees the new version.
#[derive(Clone, Debug)]
struct Member {
    name: Arc<str>,
    /// Its voice; `None` without an identity.
    voter: Option<Voter>,
}

/// The last ACK and NACK of one type.
#[derive(Clone, Debug)]
pub(super) struct TypeState {
    taken: Option<(Arc<Collection>, u64)>,
    refused: Option<(Option<Arc<Collection>>, Arc<str>)>,
}

/// The answers of proxies that see the new version.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    proxies: BTreeMap<ProxyId, Member>,
    states: BTreeMap<(ProxyId, ResourceType), TypeState>,
}

impl Members {
    /// The connected proxies that see the new version, with their answers.
    pub(super) fn of(
        rollout: &Rollout,
        context: &PushContext,
        connections: &[ConnectionInfo],
    ) -> Self {
        let mut members = Self::default();
        for info in connections
            .iter()
            .filter(|info| rollout.is_seen_by(&info.proxy.name))
        {
            let member = Member {
                name: info.proxy.name.clone(),
                voter: voter(context, &info.proxy, info.peer.map(|peer| peer.ip())),
            };
            members.proxies.insert(info.proxy_id, member);
            for watch in &info.types {
                let refused = watch
                    .rejected
                    .as_ref()
                    .map(|rejected| (watch.refused.clone(), rejected.message.clone()));
                let rejected = TypeState {
                    taken: watch.taken.clone(),
                    refused,
                };
                members.states.insert((info.proxy_id, watch.kind), rejected);
            }
        }

        members
    }

    /// Counts the proxies by state; `is_shared`: whether other replicas may have further ones.
    /// `before` are those that rejected something of a type before the
    /// stage began: they count neither as pending nor as refusing. The rejection of a proxy of the
    /// object's own namespace stops the rollout; those of others only as they would quarantine it,
    /// and those of clients without an identity never. The cost depends on the resources that
    /// depend on the object.
    pub(super) fn tally(
        &self,
        inspect: &Inspect<'_>,
        object: &AnyObject,
        before: &Refusing,
        is_shared: bool,
    ) -> ProxyCounts {
        let mut tally = ProxyCounts::default();
        let began = last_change(inspect, &FactKey::Rollout(object.object_ref()));
        let mut compared = Compared::default();
        let mut counter = VoteCounter::default();
        let subject = Subject {
            object: object.object_ref(),
            root: Namespace::new(&inspect.engine.context().mesh.config.root_namespace),
        };

        for (proxy, kinds) in inspect.engine.affected_proxies(&facts_of(object)) {
            let Some(Member { name, voter }) = self.proxies.get(&proxy) else {
                continue;
            };

            tally.reached += 1;
            let mut is_pending = false;
            let mut rejection = None;
            for kind in kinds
                .into_iter()
                .filter(|kind| !before.contains(&(proxy, *kind)))
            {
                let shown = inspect.engine.shown(proxy, kind);
                let mut is_shown = |of: &Arc<Collection>| {
                    shown
                        .as_ref()
                        .is_some_and(|shown| compared.are_equal(shown, of))
                };
                let state = self.states.get(&(proxy, kind));
                let taken = state.and_then(|state| state.taken.as_ref());
                if taken.is_some_and(|(collection, revision)| {
                    *revision >= began || is_shown(collection)
                }) {
                    continue;
                }
                is_pending = true;
                let refused = state.and_then(|state| state.refused.as_ref());
                // It may have rejected an older response, and not have answered yet.
                if let Some((_, message)) =
                    refused.filter(|(what, _)| what.as_ref().is_some_and(&mut is_shown))
                {
                    rejection.get_or_insert_with(|| {
                        let kind = kind.short_name();
                        format!("{name} rejected {kind}: {}", excerpt(message))
                    });
                }
            }

            let answer = match (&rejection, is_pending) {
                (Some(_), _) => Answer::Rejected,
                (None, true) => Answer::Pending,
                (None, false) => Answer::Accepted,
            };
            match voter {
                Some(voter) => counter.add(voter.clone(), answer),
                None => counter.add_stranger(),
            }
            if let Some(text) = rejection {
                let is_own = voter
                    .as_ref()
                    .is_some_and(|voter| voter.account.namespace == subject.object.name.namespace);
                let place = if is_own {
                    &mut tally.refused
                } else {
                    &mut tally.contested
                };
                place.get_or_insert(text);
            }

            if is_pending {
                tally.pending += 1;
                if tally.pending_proxies.len() < NAMED {
                    tally.pending_proxies.push(name.to_string());
                }
            } else {
                tally.taken += 1;
            }
        }

        if tally.refused.is_none() && tally.contested.is_some() {
            let ballot = Ballot {
                votes: &counter.votes(),
                is_complete: !is_shared,
            };
            let verdict = Judgement::open(Duration::ZERO).step(&subject, &ballot, MAX_WAIT);
            if matches!(verdict, Verdict::Quarantine(_)) {
                tally.refused = tally.contested.take();
            }
        }
        tally
    }
}

/// The proxies that currently reject something.
pub(super) fn refusing(connections: &[ConnectionInfo]) -> Refusing {
    let of_one = |info: &ConnectionInfo| {
        let refused = info.types.iter().filter(|watch| watch.rejected.is_some());
        let id = info.proxy_id;
        refused
            .map(move |watch| (id, watch.kind))
            .collect::<Vec<_>>()
    };
    connections.iter().flat_map(of_one).collect()
}

/// The proxies that see the new version at a stage in addition to those of its share: the first
/// proxy, in order, of each workload without a connected proxy in the share. Connected proxies of
/// `before` stay.
pub(super) fn chosen<'a>(
    rollout: &Rollout,
    share: navarch_api::rollout::Share,
    before: &BTreeSet<Arc<str>>,
    proxies: impl Iterator<Item = &'a Proxy>,
) -> BTreeSet<Arc<str>> {
    let mut workloads = BTreeMap::new();
    let mut chosen = BTreeSet::new();

    for proxy in proxies {
        let rank = rollout.rank(&proxy.name);
        let is_kept = before.contains(&proxy.name);
        if is_kept {
            chosen.insert(proxy.name.clone());
        }
        let sees = is_kept || share.contains(rank);
        let entry = workloads
            .entry(workload(proxy))
            .or_insert_with(|| (rank, proxy.name.clone(), sees));
        entry.2 |= sees;
        if (rank, &proxy.name) < (entry.0, &entry.1) {
            (entry.0, entry.1) = (rank, proxy.name.clone());
        }
    }

    chosen.extend(
        workloads
            .into_values()
            .filter(|(_, _, sees)| !sees)
            .map(|(_, first, _)| first),
    );

    chosen
}

/// The workload of a proxy: namespace and name.
fn workload(proxy: &Proxy) -> (Arc<str>, Arc<str>) {
    let label = || {
        WORKLOAD_LABELS
            .iter()
            .find_map(|label| proxy.labels.get(*label).cloned())
    };
    let name = proxy
        .meta(WORKLOAD_KEY)
        .map(Arc::from)
        .or_else(label)
        .unwrap_or_else(|| proxy.service_cluster.clone());
    (Arc::from(proxy.namespace.as_str()), name)
}
