//! Virtual hosts follow the route configurations that a client has.
//!
//! Envoy asks for virtual hosts once, without names, and takes those of every route configuration that says `vhds`. It drops
//! those of a route configuration that it does not have, and forgets all of one that it asks for anew.

use std::collections::BTreeSet;

use crate::session::Session;
use navarch_api::names::ResourceName;
use navarch_push::resource::ResourceType;

impl Session {
    /// Sets what the client shall have of virtual hosts by the route configurations that it asks for. False where it has asked
    /// for none: what it brought of them from an earlier stream must wait until then.
    pub(crate) fn follow_routes(&mut self) -> bool {
        let Some(routes) = self.watches.get(&ResourceType::Route) else { return false };
        let names = routes.interest.names.clone();
        if let Some(hosts) = self.watches.get_mut(&ResourceType::VirtualHost) {
            hosts.interest.names = names;
        }
        true
    }

    /// The client asks for these route configurations: it has none of their virtual hosts, whatever it had before.
    pub(crate) fn hosts_of_again(&mut self, routes: &BTreeSet<ResourceName>) {
        self.hosts_again(|routes_of_host| routes.iter().any(|name| name.as_str() == routes_of_host));
    }

    /// Routes were sent. If earlier ones were rejected, the virtual hosts that came with them may be lost.
    pub(crate) fn routes_sent(&mut self) {
        if std::mem::take(&mut self.order.hosts_in_doubt) {
            self.hosts_again(|_| true);
        }
    }

    /// Has virtual hosts sent again that the client was sent, by their route configurations.
    fn hosts_again(&mut self, is_meant: impl Fn(&str) -> bool) {
        let Some(hosts) = self.watches.get_mut(&ResourceType::VirtualHost) else { return };
        let is_meant = |name: &ResourceName| name.as_str().rsplit_once('/').is_some_and(|(routes, _)| is_meant(routes));
        let held: BTreeSet<ResourceName> = hosts.held.base.names().filter(is_meant).collect();
        hosts.ask(held);
    }
}
