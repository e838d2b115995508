//! Virtual hosts follow the route configurations that a client has.
//!
//! Envoy subscribes to virtual hosts once, without names, and uses those of every route
//! configuration with `vhds`. It drops the virtual hosts of other route configurations, and removes
//! all of a route configuration that it subscribes to again.
//!
//! Up to version 1.39, Envoy does not end the subscription when a route configuration loses its
//! `vhds`: `RdsRouteConfigSubscription::afterProviderUpdate` releases the object instead of deleting
//! it. A removal of virtual hosts that arrives later replaces all of the route configuration's by
//! those that were inline while it had `vhds`, and every other host gets 404. So the removals wait
//! until the route configuration has virtual hosts again: without any, it has no `vhds`. The client
//! keeps no more than it had, and only for route configurations that it subscribes to.

use std::collections::BTreeSet;

use crate::session::Session;
use crate::session::watch::{PendingRemovals, Watch};
use navarch_api::names::ResourceName;
use navarch_push::resource::{Collection, ResourceType};

impl Watch {
    /// Takes the virtual hosts whose removal waits until their route configurations have others. Only
    /// their names are needed.
    pub(crate) fn take_kept(
        &self,
        leaving: &mut PendingRemovals,
        latest: &Collection,
    ) -> PendingRemovals {
        if self.resource_type != ResourceType::VirtualHost || leaving.is_empty() {
            return PendingRemovals::new();
        }

        let routes = self.routes_without_hosts(latest);
        let is_kept = |host: &ResourceName| routes_of(host).is_some_and(|of| routes.contains(of));
        let kept: PendingRemovals = leaving
            .keys()
            .filter(|host| is_kept(host))
            .map(|host| (host.clone(), None))
            .collect();
        leaving.retain(|host, _| !kept.contains_key(host));
        kept
    }

    /// The client's route configurations that have no virtual hosts.
    fn routes_without_hosts(&self, latest: &Collection) -> BTreeSet<&str> {
        let names = self.interest.names.iter();
        let mut routes: BTreeSet<&str> = names.map(ResourceName::as_str).collect();
        for host in &latest.resources {
            if let Some(of) = routes_of(&host.name) {
                routes.remove(of);
            }
        }
        routes
    }
}

/// The route configuration of a virtual host.
fn routes_of(host: &ResourceName) -> Option<&str> {
    let (routes, _) = host.as_str().rsplit_once('/')?;
    Some(routes)
}

impl Session {
    /// Sets the subscription to virtual hosts from the subscribed route configurations. Returns
    /// false if there are none yet: virtual hosts from an earlier stream must wait until then.
    pub(crate) fn follow_routes(&mut self) -> bool {
        let Some(routes) = self.watches.get(&ResourceType::Route) else {
            return false;
        };
        let names = routes.interest.names.clone();
        if let Some(hosts) = self.watches.get_mut(&ResourceType::VirtualHost) {
            hosts.interest.names = names;
        }
        true
    }

    /// Records that the client subscribes to these route configurations again: it has dropped their
    /// virtual hosts.
    pub(crate) fn hosts_of_again(&mut self, routes: &BTreeSet<ResourceName>) {
        self.hosts_again(|routes_of_host| {
            routes.iter().any(|name| name.as_str() == routes_of_host)
        });
    }

    /// Records that routes were sent. If earlier ones were rejected, their virtual hosts may be
    /// lost and are sent again.
    pub(crate) fn routes_sent(&mut self) {
        if std::mem::take(&mut self.order.hosts_in_doubt) {
            self.hosts_again(|_| true);
        }
    }

    /// Sends virtual hosts again whose route configurations match.
    fn hosts_again(&mut self, selects: impl Fn(&str) -> bool) {
        let Some(hosts) = self.watches.get_mut(&ResourceType::VirtualHost) else {
            return;
        };
        let selects = |name: &ResourceName| routes_of(name).is_some_and(&selects);
        let held: BTreeSet<ResourceName> = hosts.held.base.names().filter(selects).collect();
        hosts.subscribe(held);
    }
}
