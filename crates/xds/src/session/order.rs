//! The order across types: make before break.
//!
//! Listeners and routes wait until the clusters that they may refer to are sent and warm; clusters
//! are removed only when no listener and no route can refer to them. Authorization policies are sent
//! after the workloads that refer to them: ztunnel looks at open connections again when a policy
//! arrives, not when a workload does. Every wait is bounded; policies that did not wait long enough
//! are sent once more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::session::Session;
use crate::session::compose::RemovalPolicy;
use crate::session::diff::{Diff, Names};
use crate::session::name_sets::NameSets;
use navarch_api::names::ResourceName;
use navarch_push::resource::ResourceType;

/// The maximum time that one type waits for another.
pub(crate) const ORDER_WAIT: Duration = Duration::from_secs(5);
/// The same for a client that has not subscribed to any endpoints. Envoy does so once it has the
/// first cluster with endpoints; other clients may never do.
const FIRST_ENDPOINTS_WAIT: Duration = Duration::from_secs(1);
/// The maximum time that policies wait for workloads: a policy that denies access must not wait
/// long for a client that is slow.
const POLICY_WAIT: Duration = Duration::from_secs(1);

/// State of types that wait for others.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Endpoint sets that sent clusters wait for.
    warming: NameSets,
    /// The client got clusters with endpoints, and did not subscribe to any in time.
    ignores_endpoints: bool,
    /// Since when listeners or routes wait.
    held_since: Option<Duration>,
    /// Since when policies wait.
    policies_held_since: Option<Duration>,
    /// Policies that were sent before the workloads that may refer to them.
    early_policies: NameSets,
    /// The client rejected routes: it is unknown whether it accepted their virtual hosts.
    pub(crate) hosts_in_doubt: bool,
}

impl Order {
    /// Ends the wait for these endpoint sets.
    pub(crate) fn warming_ends(&mut self, endpoints: &BTreeSet<ResourceName>) {
        self.warming.remove(endpoints);
    }
}

impl Session {
    /// Records that clusters were sent that wait for these endpoint sets. Those that the client
    /// already watches must be sent again: Envoy warms a changed cluster anew, and does not
    /// reliably request them again (envoyproxy/envoy
    /// #13009, #33607).
    pub(crate) fn clusters_sent(&mut self, warming: &Names) {
        if warming.is_empty() {
            return;
        }
        self.order.warming.add(warming);
        if let Some(endpoints) = self.watches.get_mut(&ResourceType::Endpoint) {
            endpoints.force(warming);
        }
    }

    /// Ends the wait for the endpoints of the clusters that a diff removes: the client may have
    /// unsubscribed from them already.
    pub(crate) fn clusters_removed(&mut self, changes: &Diff) {
        if self.order.warming.is_empty() {
            return;
        }
        self.order.warming.remove(&changes.removed_endpoints());
    }

    /// Whether changes of a type may be sent now, as far as other types are concerned.
    pub(crate) fn may_send(&mut self, resource_type: ResourceType, now: Duration) -> bool {
        match resource_type {
            // Envoy drops virtual hosts that arrive before their route configuration.
            ResourceType::VirtualHost if self.is_unsent(ResourceType::Route) => return false,
            ResourceType::Authorization => return self.may_send_policies(now),
            ResourceType::Listener | ResourceType::Route | ResourceType::VirtualHost => {}
            ResourceType::Cluster
            | ResourceType::Endpoint
            | ResourceType::Secret
            | ResourceType::ExtensionConfig
            | ResourceType::NameTable
            | ResourceType::ProxyConfig
            | ResourceType::Bootstrap
            | ResourceType::Locality
            | ResourceType::ObjectStatus
            | ResourceType::Address
            | ResourceType::Workload
            | ResourceType::Object(_) => return true,
        }

        if !self.are_clusters_cold() {
            self.order.held_since = None;
            return true;
        }

        let since = *self.order.held_since.get_or_insert(now);
        if now < since + self.order_wait() {
            return false;
        }

        self.order.warming.clear();
        self.order.ignores_endpoints = !self.watches.contains_key(&ResourceType::Endpoint);
        true
    }

    /// Whether changes of workloads are unsent.
    fn are_workloads_unsent(&self) -> bool {
        let workloads = [ResourceType::Address, ResourceType::Workload];
        workloads
            .into_iter()
            .any(|resource_type| self.is_unsent(resource_type))
    }

    /// Records that these policies were sent.
    pub(crate) fn policies_sent(&mut self, names: impl Iterator<Item = ResourceName>) {
        if self.are_workloads_unsent() {
            self.order.early_policies.add(&Arc::new(names.collect()));
        }
    }

    /// Records that workloads were sent: policies that came before them are sent again, since the
    /// client has not looked at open connections with both.
    pub(crate) fn workloads_sent(&mut self) {
        if self.order.early_policies.is_empty() || self.are_workloads_unsent() {
            return;
        }
        let early = std::mem::take(&mut self.order.early_policies);
        if let Some(policies) = self.watches.get_mut(&ResourceType::Authorization) {
            for names in early.as_slice() {
                policies.force(names);
            }
        }
    }

    /// Whether policies may be sent now: all changes of workloads are sent.
    fn may_send_policies(&mut self, now: Duration) -> bool {
        if !self.are_workloads_unsent() {
            self.order.policies_held_since = None;
            return true;
        }

        let since = *self.order.policies_held_since.get_or_insert(now);
        now >= since + POLICY_WAIT
    }

    /// The maximum time that listeners and routes wait in the current state.
    fn order_wait(&self) -> Duration {
        let has_endpoints = self.watches.contains_key(&ResourceType::Endpoint);
        if has_endpoints || self.is_unsent(ResourceType::Cluster) {
            ORDER_WAIT
        } else {
            FIRST_ENDPOINTS_WAIT
        }
    }

    /// Whether clusters or their endpoints are unsent, or clusters wait for endpoints that the
    /// client has not subscribed to yet. A client that did not subscribe to any in time is not
    /// waited for again.
    fn are_clusters_cold(&self) -> bool {
        self.is_unsent(ResourceType::Cluster)
            || self.is_unsent(ResourceType::Endpoint)
            || !self.order.warming.is_empty()
                && (self.watches.contains_key(&ResourceType::Endpoint)
                    || !self.order.ignores_endpoints)
    }

    /// Records that all endpoints that the client subscribes to are sent: clusters no longer wait
    /// for those.
    pub(crate) fn endpoints_sent(&mut self) {
        let Some(endpoints) = self.watches.get(&ResourceType::Endpoint) else {
            return;
        };
        let interest = &endpoints.interest;
        self.order
            .warming
            .retain(|names| !interest.wildcard && !names.is_subset(&interest.names));
    }

    /// Whether removals of a type may be sent now.
    pub(crate) fn removals(&self, resource_type: ResourceType, now: Duration) -> RemovalPolicy {
        let waited = || {
            let since = self
                .watches
                .get(&resource_type)
                .and_then(|watch| watch.removals_pending_since());
            since.is_some_and(|since| since + ORDER_WAIT <= now)
        };

        let are_quiet = match resource_type {
            ResourceType::Cluster => {
                let users = [ResourceType::Listener, ResourceType::Route];
                let hosts_are_quiet = self.is_acknowledged(ResourceType::VirtualHost);

                // A client that reconnects with clusters has listeners, too, and is about to
                // subscribe to them.
                let comes_back = self
                    .watches
                    .get(&resource_type)
                    .is_some_and(|watch| watch.has_initial_versions)
                    && now < ORDER_WAIT;

                hosts_are_quiet
                    && users.into_iter().all(|user| {
                        self.is_acknowledged(user)
                            && (!comes_back || self.watches.contains_key(&user))
                    })
            }
            ResourceType::Endpoint => self.is_acknowledged(ResourceType::Cluster),
            // Once the route configuration with `vhds` is sent, the client has no other virtual
            // hosts.
            ResourceType::VirtualHost => !self.is_unsent(ResourceType::Route),
            ResourceType::Listener
            | ResourceType::Route
            | ResourceType::Secret
            | ResourceType::ExtensionConfig
            | ResourceType::NameTable
            | ResourceType::ProxyConfig
            | ResourceType::Bootstrap
            | ResourceType::Locality
            | ResourceType::ObjectStatus
            | ResourceType::Address
            | ResourceType::Workload
            | ResourceType::Authorization
            | ResourceType::Object(_) => true,
        };

        if are_quiet || waited() {
            RemovalPolicy::Allowed
        } else {
            RemovalPolicy::Withheld
        }
    }

    /// When types that wait are sent unconditionally.
    pub(crate) fn held_until(&self) -> Option<Duration> {
        let listeners = self.order.held_since.map(|since| since + self.order_wait());
        let policies = self
            .order
            .policies_held_since
            .map(|since| since + POLICY_WAIT);
        listeners.into_iter().chain(policies).min()
    }

    /// Ends the waits of types without a response to send.
    pub(crate) fn release(&mut self) {
        let waits = [
            ResourceType::Listener,
            ResourceType::Route,
            ResourceType::VirtualHost,
        ];
        let waits = waits
            .into_iter()
            .any(|resource_type| self.is_unsent(resource_type));
        if !waits {
            self.order.held_since = None;
        }

        if !self.is_unsent(ResourceType::Authorization) {
            self.order.policies_held_since = None;
        }
    }
}
