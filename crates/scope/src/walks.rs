//! Requests of workloads through the proxies of a mesh, by the configuration in force.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use navarch_answers::mirror::Mirror;
use navarch_answers::received::ReadResources;
use navarch_answers::why_not::{Origin, Others, ProxySnapshot, Request, why_not};
use navarch_push::context::PushContext;

/// The proxies of a mesh, with what each of them has.
pub(crate) struct Walks<'a> {
    context: &'a PushContext,
    proxies: Vec<ProxySnapshot>,
    /// Indexes of `proxies`.
    by_address: BTreeMap<IpAddr, usize>,
    read: RefCell<ReadResources>,
}

impl<'a> Walks<'a> {
    /// Those of the proxies of a mirror, which have its indexes.
    pub(crate) fn of(context: &'a PushContext, mirror: &Mirror) -> Self {
        let snapshot = |(index, client): (usize, &navarch_answers::client::Client)| ProxySnapshot {
            proxy: client.proxy.clone(),
            had: mirror.had(index),
        };
        let proxies: Vec<ProxySnapshot> = mirror.clients().enumerate().map(snapshot).collect();
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

    /// Why a request of the proxy with this index to the first port of a host is refused now;
    /// `None` if it passes. The path is `/`: metrics have none.
    pub(crate) fn refusal(&self, index: usize, host: &str) -> Option<String> {
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
        let others = Others {
            at: &at,
            waypoints: &Vec::new,
            ztunnels: &Vec::new,
            read: &self.read,
        };
        let answer = why_not(self.context, &origin, &request, others);
        // A redirect or a response of a route is an answer.
        let is_refused = answer.response.is_none();
        let reason = answer.reason.filter(|_| is_refused)?;
        Some(match answer.advice {
            Some(advice) => format!("{reason} ({advice})"),
            None => reason,
        })
    }
}
