//! What a simulated proxy holds and asks for: CDS names the EDS resources, LDS the RDS ones, as with Envoy.
//!
//! Pure state: responses go in, requests come out. [`crate::delta`] and [`crate::state`] put it on the wire.

use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::kind::Kind;
use crate::names::{Id, Names};
use crate::peek;

/// One resource that came.
#[derive(Debug)]
pub(crate) struct Came<'a> {
    /// Its name.
    pub(crate) name: &'a Bytes,
    /// Its version.
    pub(crate) version: &'a Bytes,
    /// Its encoded content.
    pub(crate) content: &'a Bytes,
}

/// What a proxy holds.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// Name and version of all it holds, by kind.
    held: [FxHashMap<Id, Id>; 5],
    /// What each cluster and each listener asks for.
    asks: FxHashMap<(bool, Id), Vec<Id>>,
    /// How often each name of EDS (`false`) and RDS (`true`) is asked for.
    wanted: FxHashMap<(bool, Id), usize>,
    /// Names asked for that have not come yet.
    missing: FxHashSet<(bool, Id)>,
    /// The kinds that have been answered.
    answered: [bool; 5],
    /// Whether a route configuration says that its virtual hosts come one by one.
    has_vhds: bool,
}

/// What a response changes in what a proxy asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The kind whose names change.
    pub(crate) kind: Option<Kind>,
    /// Names it asks for now.
    pub(crate) more: Vec<Id>,
    /// Names it no longer asks for.
    pub(crate) less: Vec<Id>,
}

/// What a kind names: its resources' kind, and which of the two it is.
fn named_by(kind: Kind) -> Option<(Kind, bool)> {
    match kind {
        Kind::Clusters => Some((Kind::Endpoints, false)),
        Kind::Listeners => Some((Kind::Routes, true)),
        Kind::Endpoints | Kind::Routes | Kind::VirtualHosts => None,
    }
}

impl Follower {
    /// Takes in resources that came and names of those that are gone.
    pub(crate) fn take(&mut self, names: &Names, kind: Kind, came: &[Came<'_>], gone: &[Bytes]) -> Turn {
        let ids = names.ids(came.iter().map(|came| came.name));
        let versions = names.ids(came.iter().map(|came| came.version));
        let gone = names.ids(gone.iter());
        if let Some(answered) = self.answered.get_mut(kind.index()) {
            *answered = true;
        }
        if let Some(held) = self.held.get_mut(kind.index()) {
            held.extend(ids.iter().copied().zip(versions));
            for id in &gone {
                held.remove(id);
            }
        }
        self.has_vhds |= kind == Kind::Routes && came.iter().any(|came| peek::has_vhds(came.content));
        for id in ids.iter().chain(&gone) {
            match kind {
                Kind::Endpoints => self.missing.remove(&(false, *id)),
                Kind::Routes => self.missing.remove(&(true, *id)),
                Kind::Clusters | Kind::Listeners | Kind::VirtualHosts => false,
            };
        }
        let Some((target, side)) = named_by(kind) else { return Turn::default() };
        let mut turn = Turn { kind: Some(target), ..Turn::default() };
        for (came, id) in came.iter().zip(ids) {
            let asked: Vec<Bytes> = match side {
                false => peek::endpoints_of(came.content).into_iter().collect(),
                true => peek::routes_of(came.content),
            };
            let asked = names.ids(asked.iter());
            self.replace(side, id, asked, &mut turn);
        }
        for id in gone {
            self.replace(side, id, Vec::new(), &mut turn);
        }
        turn
    }

    /// A resource asks for other names now.
    fn replace(&mut self, side: bool, id: Id, asked: Vec<Id>, turn: &mut Turn) {
        for name in &asked {
            let count = self.wanted.entry((side, *name)).or_default();
            *count += 1;
            if *count == 1 {
                self.missing.insert((side, *name));
                turn.more.push(*name);
            }
        }
        let before = match asked.is_empty() {
            true => self.asks.remove(&(side, id)),
            false => self.asks.insert((side, id), asked),
        };
        for name in before.unwrap_or_default() {
            let Some(count) = self.wanted.get_mut(&(side, name)) else { continue };
            *count -= 1;
            if *count == 0 {
                self.wanted.remove(&(side, name));
                self.missing.remove(&(side, name));
                turn.less.push(name);
            }
        }
    }

    /// Whether all it knows to ask for has been answered.
    pub(crate) fn is_synced(&self) -> bool {
        let answered = |kind: Kind| self.answered.get(kind.index()).copied().unwrap_or(false);
        let hosts = !self.has_vhds || answered(Kind::VirtualHosts);
        self.missing.is_empty() && answered(Kind::Clusters) && answered(Kind::Listeners) && hosts
    }

    /// Whether it is time to ask for virtual hosts: Envoy does once, at the first route configuration that says so.
    pub(crate) fn wants_hosts(&self) -> bool {
        self.has_vhds
    }

    /// Whether it is time to ask for listeners: Envoy does when its clusters have their endpoints.
    pub(crate) fn wants_listeners(&self) -> bool {
        let clusters = self.answered.get(Kind::Clusters.index()).copied().unwrap_or(false);
        clusters && !self.missing.iter().any(|(side, _)| !side)
    }

    /// Names held of a kind that are not among these.
    pub(crate) fn others(&self, kind: Kind, names: &Names, these: &[Bytes]) -> Vec<Bytes> {
        let these: FxHashSet<Id> = names.ids(these.iter()).into_iter().collect();
        let others = self.held(kind).filter(|(name, _)| !these.contains(name));
        others.map(|(name, _)| names.text(name).into()).collect()
    }

    /// The stream ended: all must be answered again.
    pub(crate) fn restart(&mut self) {
        self.answered = [false; 5];
    }

    /// Names and versions that it holds of a kind.
    pub(crate) fn held(&self, kind: Kind) -> impl Iterator<Item = (Id, Id)> {
        self.held.get(kind.index()).into_iter().flatten().map(|(name, version)| (*name, *version))
    }

    /// Names that it asks for of a kind.
    pub(crate) fn wanted(&self, kind: Kind) -> Vec<Id> {
        let side = kind == Kind::Routes;
        self.wanted.keys().filter(|(of, _)| *of == side).map(|(_, id)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::cluster::v3::{Cluster, cluster};
    use prost::Message;

    use super::*;

    /// A cluster that asks for the endpoints of `service`.
    fn cluster(service: &str) -> Bytes {
        let config = cluster::EdsClusterConfig { service_name: service.to_owned(), eds_config: None };
        let kind = cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds.into());
        let cluster =
            Cluster { eds_cluster_config: Some(config), cluster_discovery_type: Some(kind), ..Default::default() };
        cluster.encode_to_vec().into()
    }

    #[test]
    fn it_asks_for_what_its_clusters_name_and_lets_go_with_them() {
        let (names, mut proxy) = (Names::default(), Follower::default());
        let (a, b, v1, v2) = (Bytes::from("a"), Bytes::from("b"), Bytes::from("1"), Bytes::from("2"));
        let (x, y) = (cluster("x"), cluster("y"));
        let texts = |ids: &[Id]| ids.iter().map(|id| names.text(*id)).collect::<Vec<_>>();

        let came = [Came { name: &a, version: &v1, content: &x }, Came { name: &b, version: &v1, content: &x }];
        let turn = proxy.take(&names, Kind::Clusters, &came, &[]);
        assert_eq!((turn.kind, texts(&turn.more), turn.less), (Some(Kind::Endpoints), vec!["x".to_owned()], vec![]));

        // One of two moves on: what both asked for is still wanted.
        let turn = proxy.take(&names, Kind::Clusters, &[Came { name: &a, version: &v2, content: &y }], &[]);
        assert_eq!((texts(&turn.more), turn.less), (vec!["y".to_owned()], vec![]));
        let turn = proxy.take(&names, Kind::Clusters, &[], &[b]);
        assert_eq!((turn.more, texts(&turn.less)), (vec![], vec!["x".to_owned()]));
        assert_eq!(proxy.held(Kind::Clusters).count(), 1);

        proxy.take(&names, Kind::Listeners, &[], &[]);
        assert!(!proxy.is_synced(), "y has not come");
        let content = Bytes::new();
        let came = Came { name: &Bytes::from("y"), version: &v1, content: &content };
        assert_eq!(proxy.take(&names, Kind::Endpoints, &[came], &[]), Turn::default());
        assert!(proxy.is_synced());
        proxy.restart();
        assert!(!proxy.is_synced());
    }
}
