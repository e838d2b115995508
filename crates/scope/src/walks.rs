//! Requests of workloads through the proxies of a mesh, by the configuration in force.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use navarch_answers::mirror::Mirror;
use navarch_answers::received::{ProxyResources, ReadResources};
use navarch_answers::why_not::{Origin, Others, ProxySnapshot, Request, why_not};
use navarch_push::context::PushContext;
use navarch_push::proxy::ProxyKind;

/// The proxies of a mesh, with what each of them has.
#[derive(Debug)]
pub struct Walks<'a> {
    context: &'a PushContext,
    proxies: Vec<ProxySnapshot>,
    /// Indexes of `proxies`.
    by_address: BTreeMap<IpAddr, usize>,
    read: RefCell<ReadResources>,
}

/// What a request would meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It passes; some destinations may have no known proxy, so that their policies are not known.
    Passes { has_unseen: bool },
    /// It is refused, with the reason.
    Refused(String),
}

impl<'a> Walks<'a> {
    /// Those of proxies, which keep their indexes.
    #[must_use]
    pub fn new(context: &'a PushContext, proxies: Vec<ProxySnapshot>) -> Self {
        let by_address = proxies
            .iter()
            .enumerate()
            .flat_map(|(index, known)| known.proxy.ips.iter().map(move |ip| (*ip, index)))
            .collect();
        Self {
            context,
            proxies,
            by_address,
            read: RefCell::default(),
        }
    }

    /// Those of the proxies of a mirror, which have its indexes.
    pub(crate) fn of(context: &'a PushContext, mirror: &Mirror) -> Self {
        let snapshot = |(index, client): (usize, &navarch_answers::client::Client)| ProxySnapshot {
            proxy: client.proxy.clone(),
            had: mirror.had(index),
        };
        Self::new(
            context,
            mirror.clients().enumerate().map(snapshot).collect(),
        )
    }

    /// What the proxy with this index has.
    pub(crate) fn had(&self, index: usize) -> Option<&ProxyResources> {
        self.proxies.get(index).map(|proxy| &proxy.had)
    }

    /// Why a request of the proxy with this index to the first port of a host is refused now;
    /// `None` if it passes.
    pub(crate) fn refusal(&self, index: usize, host: &str) -> Option<String> {
        match self.verdict(index, host)? {
            Verdict::Refused(reason) => Some(reason),
            Verdict::Passes { .. } => None,
        }
    }

    /// What a request of the proxy with this index to the first port of a host would meet; `None` if
    /// there is no such proxy. The path is `/`: metrics have none.
    ///
    /// It costs in proportion to the listeners and routes of the proxy, and to the endpoints of the
    /// host.
    pub(crate) fn verdict(&self, index: usize, host: &str) -> Option<Verdict> {
        let origin = Origin::Proxy(self.proxies.get(index)?.clone());
        let request = Request {
            host: host.to_owned(),
            port: None,
            method: "GET".to_owned(),
            path: "/".to_owned(),
            headers: BTreeMap::new(),
            claims: None,
            to_all: true,
        };

        let at = |ip: IpAddr| {
            let index = self.by_address.get(&ip)?;
            self.proxies.get(*index).cloned()
        };
        let waypoints = || self.of_kind(ProxyKind::Waypoint);
        let ztunnels = || self.of_kind(ProxyKind::Ztunnel);
        let others = Others {
            at: &at,
            waypoints: &waypoints,
            ztunnels: &ztunnels,
            read: &self.read,
        };
        let answer = why_not(self.context, &origin, &request, others);

        let passes = Verdict::Passes {
            has_unseen: !answer.unseen.is_empty(),
        };
        // A redirect or a response of a route is an answer.
        let is_refused = answer.response.is_none();
        let Some(reason) = answer.reason.filter(|_| is_refused) else {
            return Some(passes);
        };
        Some(Verdict::Refused(match answer.advice {
            Some(advice) => format!("{reason} ({advice})"),
            None => reason,
        }))
    }

    fn of_kind(&self, kind: ProxyKind) -> Vec<ProxySnapshot> {
        let all = self.proxies.iter();
        all.filter(|one| one.proxy.kind == kind).cloned().collect()
    }
}
