//! The services of one ServiceEntry, indexed by host.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::model::Service;
use navarch_api::names::Hostname;

/// The services that a ServiceEntry declares: one for each host and address, in the order in which
/// it lists them.
///
/// All of them have one namespace and one template: they differ only in host and address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryServices {
    /// In the order of the ServiceEntry.
    list: Arc<[Arc<Service>]>,
    /// Indexes into the list, sorted by host and index. Empty if there is only one service.
    by_host: Box<[u32]>,
}

impl EntryServices {
    /// From services as listed.
    #[must_use]
    pub(super) fn new(services: Vec<Service>) -> Self {
        let list: Arc<[Arc<Service>]> = services.into_iter().map(Arc::new).collect();
        let mut by_host: Vec<u32> = if list.len() > 1 {
            (0..).take(list.len()).collect()
        } else {
            Vec::new()
        };
        by_host.sort_by(|a, b| host_at(&list, *a).cmp(&host_at(&list, *b)));
        Self {
            list,
            by_host: by_host.into(),
        }
    }

    /// All services as listed.
    #[must_use]
    pub(super) fn all(&self) -> &Arc<[Arc<Service>]> {
        &self.list
    }

    /// The services of a host, as listed.
    pub(super) fn of(&self, host: &Hostname) -> impl Iterator<Item = &Arc<Service>> {
        let start = self
            .by_host
            .partition_point(|place| host_at(&self.list, *place) < Some(host));
        let places = self.by_host.iter().skip(start);
        let of_host = places
            .filter_map(|place| at(&self.list, *place))
            .take_while(|found| found.key.hostname == *host);
        let only = self
            .list
            .iter()
            .filter(|only| self.by_host.is_empty() && only.key.hostname == *host);
        of_host.chain(only)
    }

    /// The hosts, each once, in order.
    fn hosts(&self) -> impl Iterator<Item = &Hostname> {
        let mut services: Vec<&Arc<Service>> = self
            .by_host
            .iter()
            .filter_map(|place| at(&self.list, *place))
            .collect();
        if self.by_host.is_empty() {
            services.extend(&*self.list);
        }
        services.dedup_by(|a, b| a.key.hostname == b.key.hostname);
        services.into_iter().map(|service| &service.key.hostname)
    }

    /// The hosts whose services differ from those of `other`.
    #[must_use]
    pub(super) fn changed_hosts(&self, other: &Self) -> BTreeSet<Hostname> {
        let differs = |host: &&Hostname| !self.of(host).eq(other.of(host));
        let gone = other.hosts().filter(|host| self.of(host).next().is_none());
        self.hosts().filter(differs).chain(gone).cloned().collect()
    }

    /// Replaces services by equal ones of `old`, so that they share memory.
    pub(super) fn share(&mut self, old: &Self) {
        let shared = |service: &Arc<Service>| {
            let mut same_host = old.of(&service.key.hostname);
            same_host
                .find(|old| *old == service)
                .unwrap_or(service)
                .clone()
        };
        self.list = if self == old {
            old.list.clone()
        } else {
            self.list.iter().map(shared).collect()
        };
    }
}

fn at(list: &[Arc<Service>], place: u32) -> Option<&Arc<Service>> {
    list.get(usize::try_from(place).ok()?)
}

/// The host of the service at an index.
fn host_at(list: &[Arc<Service>], place: u32) -> Option<&Hostname> {
    at(list, place).map(|service| &service.key.hostname)
}
