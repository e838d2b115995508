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
//! until there are virtual hosts again: without any, no route configuration has `vhds`.

use std::collections::BTreeSet;

use crate::session::Session;
use navarch_api::names::ResourceName;
use navarch_push::resource::ResourceType;

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
        let selects = |name: &ResourceName| {
            name.as_str()
                .rsplit_once('/')
                .is_some_and(|(routes, _)| selects(routes))
        };
        let held: BTreeSet<ResourceName> = hosts.held.base.names().filter(selects).collect();
        hosts.subscribe(held);
    }
}
