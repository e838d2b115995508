//! Applies requests to a session: subscriptions, ACK and NACK, by protocol.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::session::diff::Base;
use crate::session::discovery_request::{DeltaRequest, Quoted, RequestedNames, StateRequest};
use crate::session::encoding_cache::EncodingCache;
use crate::session::watch::Watch;
use crate::session::{Effect, Session};
use navarch_api::names::ResourceName;
use navarch_push::engine::Interest;
use navarch_push::resource::ResourceType;

/// What the names of clusters of services begin with. Only these are sent on demand.
pub(crate) const SERVICE_CLUSTER: &str = "outbound|";

impl Session {
    /// The names of a type that the client is subscribed to, beside a wildcard.
    pub(crate) fn subscribed(&self, resource_type: ResourceType) -> Arc<BTreeSet<ResourceName>> {
        let watch = self.watches.get(&resource_type);
        watch.map_or_else(Arc::default, |watch| watch.interest.names.clone())
    }

    /// Those of these clusters that exist for the client, and that it has not rejected; `None` while
    /// that is not known.
    pub(crate) fn known_clusters(
        &self,
        names: &BTreeSet<ResourceName>,
    ) -> Option<BTreeSet<ResourceName>> {
        if self.is_unanswered(ResourceType::Cluster) {
            return None;
        }
        let watch = self.watches.get(&ResourceType::Cluster)?;
        let latest = watch.latest.as_ref()?;
        let exist = names
            .iter()
            .filter(|name| latest.resources.find(name).is_some() && !watch.withheld.contains(name));
        Some(exist.cloned().collect())
    }

    /// Subscribes to clusters of services that the client has, and that are no longer sent without a
    /// request. Nothing is sent until that is answered; then those that do not exist are removed.
    pub(super) fn keep_clusters(&mut self, cache: &EncodingCache, effects: &mut Vec<Effect>) {
        if self.is_unanswered(ResourceType::Cluster) {
            return;
        }
        let Some(watch) = self.watches.get_mut(&ResourceType::Cluster) else {
            return;
        };
        let Some(latest) = &watch.latest else {
            return;
        };

        let left = watch.held.base.names().filter(|name| {
            name.as_str().starts_with(SERVICE_CLUSTER)
                && latest.resources.find(name).is_none()
                && !watch.interest.names.contains(name)
        });
        let left: BTreeSet<ResourceName> = left.collect();
        if left.is_empty() {
            return;
        }
        watch.interest.names = Arc::new(&*watch.interest.names | &left);
        self.refresh(ResourceType::Cluster, cache, effects);
    }

    /// Applies a state-of-the-world request: the whole subscription of a type, and the answer to
    /// the last response.
    pub(crate) fn on_state(
        &mut self,
        request: StateRequest,
        cache: &EncodingCache,
        effects: &mut Vec<Effect>,
    ) {
        let StateRequest {
            resource_type,
            quoted: Quoted { nonce, error },
            wanted: RequestedNames { star, names },
        } = request;

        // An empty list is a wildcard, unless the client has sent names before: then it
        // unsubscribes from the type, as gRPC does.
        if !names.is_empty() {
            self.named.insert(resource_type);
        }

        let wildcard = star
            || names.is_empty()
                && resource_type.is_wildcard_by_default()
                && !self.named.contains(&resource_type);
        let interest = Interest {
            wildcard,
            names: Arc::new(names),
        };
        let wants_nothing = !wildcard && interest.names.is_empty();
        let is_rejected = error.is_some();

        effects.extend(
            error
                .clone()
                .map(|error| Effect::Rejected(resource_type, error)),
        );
        let Some(watch) = self.watches.get_mut(&resource_type) else {
            if !wants_nothing {
                self.watches.insert(
                    resource_type,
                    Box::new(Watch::new(resource_type, interest, Base::Nothing)),
                );
                self.refresh(resource_type, cache, effects);
            }
            return;
        };

        if let Some(error) = error {
            watch.reject_state(&nonce, error);
        }

        if wants_nothing {
            self.watches.remove(&resource_type);
            effects.push(Effect::Unsubscribe(resource_type));
            return;
        }

        let last = watch.last_nonce();
        if nonce.is_empty() && last.is_some() {
            watch.restart();
        } else if !nonce.is_empty() && last != Some(&*nonce) {
            // The client will send its subscription again when it answers the last response.
            effects.push(Effect::Stale(resource_type));
            return;
        } else if !is_rejected {
            watch.acknowledge(&nonce);
        }

        if interest == watch.interest {
            return;
        }

        if wildcard && !watch.interest.wildcard {
            watch.subscribe_to_all();
        }

        watch.subscribe(&*interest.names - &*watch.interest.names);
        watch.interest = interest;
        self.refresh(resource_type, cache, effects);
    }

    /// Applies a delta request: subscribed and unsubscribed names of a type, and the answer to a
    /// response.
    pub(crate) fn on_delta(
        &mut self,
        request: DeltaRequest,
        cache: &EncodingCache,
        effects: &mut Vec<Effect>,
    ) {
        let DeltaRequest {
            resource_type,
            quoted: Quoted { nonce, error },
            subscribe,
            unsubscribe,
            initial_versions: _,
        } = &request;

        effects.extend(
            error
                .clone()
                .map(|error| Effect::Rejected(*resource_type, error)),
        );
        let Some(watch) = self.watches.get_mut(resource_type) else {
            self.on_first_delta(request, cache, effects);
            return;
        };

        let is_known = nonce.is_empty() || watch.last_nonce() == Some(nonce);
        let is_answer = match error {
            Some(error) => {
                self.order.hosts_in_doubt |= *resource_type == ResourceType::Route;
                let is_answer = watch.reject_resources(nonce, error.clone(), cache);
                if is_answer && *resource_type == ResourceType::Cluster {
                    // Listeners and routes do not wait for those.
                    self.order.warming_ends(&watch.endpoints_of_rejected());
                }
                is_answer
            }
            None => watch.acknowledge(nonce),
        };

        if !is_answer && !is_known {
            // The subscription is applied anyway, as it is sent only once.
            effects.push(Effect::Stale(*resource_type));
        }

        if subscribe.is_empty() && unsubscribe.is_empty() {
            return;
        }

        let mut interest = watch.interest.clone();
        interest.wildcard = (interest.wildcard || subscribe.star) && !unsubscribe.star;
        if !subscribe.names.is_empty() {
            interest.names = Arc::new(&*interest.names | &subscribe.names);
        }

        if !unsubscribe.names.is_empty() {
            interest.names = Arc::new(&*interest.names - &unsubscribe.names);
        }

        watch.subscribe(subscribe.names.clone());
        watch.remove_names(&unsubscribe.names);

        if interest.wildcard {
            // The client cannot know whether the wildcard includes the name that it unsubscribed
            // from.
            watch.subscribe(unsubscribe.names.clone());
            if !watch.interest.wildcard {
                watch.subscribe_to_all();
            }
        }

        if interest != watch.interest {
            watch.interest = interest;
            self.refresh(*resource_type, cache, effects);
        }

        if *resource_type == ResourceType::Route {
            self.hosts_of_again(&subscribe.names);
        }
    }

    /// Applies the first delta request of a type.
    fn on_first_delta(
        &mut self,
        request: DeltaRequest,
        cache: &EncodingCache,
        effects: &mut Vec<Effect>,
    ) {
        let DeltaRequest {
            resource_type,
            quoted: _,
            subscribe,
            unsubscribe,
            initial_versions,
        } = request;

        let asks_for_all =
            subscribe.star || subscribe.is_empty() && resource_type.is_wildcard_by_default();

        // Virtual hosts follow their route configurations, whatever the names.
        let wildcard =
            asks_for_all && !unsubscribe.star || resource_type == ResourceType::VirtualHost;
        let mut names = subscribe.names;

        if !wildcard {
            // The client's resources of named types count as subscribed, as in Istio.
            names.extend(initial_versions.names());
        } else if resource_type == ResourceType::Cluster && self.bounds.keeps_clusters {
            let held = initial_versions.names();
            names.extend(held.filter(|name| name.as_str().starts_with(SERVICE_CLUSTER)));
        }

        names.retain(|name| !unsubscribe.names.contains(name));
        let base = match initial_versions.is_empty() {
            true => Base::Nothing,
            false => {
                Base::InitialVersions(cache.initial_versions.intern(&Arc::new(initial_versions)))
            }
        };

        let interest = Interest {
            wildcard,
            names: Arc::new(names),
        };
        self.watches.insert(
            resource_type,
            Box::new(Watch::new(resource_type, interest, base)),
        );
        self.refresh(resource_type, cache, effects);
    }
}
