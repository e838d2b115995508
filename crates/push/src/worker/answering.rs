//! Answering of subscriptions in time slices, and calls of the
//! [`PushObserver`](crate::observer::PushObserver).

use tokio::time::Instant;

use super::{RouteSizeQuestion, SUBSCRIPTION_WORK_TIME, TIME_SLICE, Worker};
use crate::engine::ProxyId;
use crate::fair_queue::{Subscription, Waiting};
use crate::mesh_state::Change;
use crate::observer::Event;

impl Worker {
    pub(super) fn remove_ended_streams(&mut self) {
        for id in self.ended_streams.take() {
            self.queue.disconnect(id);
            self.engine.disconnect(id);
            self.notify(|_| Event::Gone(id));
        }
    }

    /// Whether subscriptions can be answered.
    pub(super) fn has_work(&self) -> bool {
        self.is_synced() && !self.queue.is_empty()
    }

    /// Answers subscriptions and questions for a limited time, one slice at a time.
    pub(super) fn work(&mut self) {
        let end = Instant::now() + SUBSCRIPTION_WORK_TIME;
        while self.has_work() && Instant::now() < end {
            let Some((id, waiting)) = self.queue.next() else {
                return;
            };
            let begun = Instant::now();
            match waiting {
                Waiting::Subscription(subscription) => {
                    let is_answered = self.work_on(id, subscription, begun + TIME_SLICE);
                    self.queue.used(id, begun.elapsed(), is_answered);
                }
                Waiting::RouteSize => {
                    self.answer_route_size(id);
                    self.queue.used(id, begun.elapsed(), true);
                    self.queue.disconnect(id);
                }
            }
        }
    }

    /// Queues the question whether a proxy has large routes, as its client's.
    pub(super) fn ask_route_size(&mut self, question: RouteSizeQuestion) {
        let RouteSizeQuestion {
            proxy,
            address,
            answer,
        } = question;
        let is_proved = proxy.identity.is_some();
        let id = self.engine.connect_to_ask(proxy);
        self.route_sizes.insert(id, answer);
        self.queue.connect(id, address, is_proved);
        self.queue.ask_route_size(id);
    }

    /// Answers whether a proxy has large routes, unless its stream has ended, and forgets the proxy.
    fn answer_route_size(&mut self, id: ProxyId) {
        if let Some(answer) = self.route_sizes.remove(&id)
            && !answer.is_closed()
        {
            // The stream may end at this moment.
            let _ = answer.send(self.engine.has_large_routes(id));
        }
        self.engine.disconnect(id);
    }

    /// Works on one subscription until `until`. Returns true when it is answered.
    fn work_on(&mut self, id: ProxyId, subscription: Subscription, until: Instant) -> bool {
        let Subscription {
            resource_type,
            interest,
            answers,
        } = subscription;

        let is_answered = match &interest {
            None => {
                self.engine
                    .answer_and_unsubscribe(id, resource_type, answers);
                true
            }
            Some(interest) => {
                self.engine
                    .subscribe_in_slices(id, resource_type, interest, answers, || {
                        Instant::now() < until
                    })
            }
        };

        if is_answered {
            self.notify(|worker| {
                let published = worker.engine.take_published();
                Event::Subscribed {
                    proxy: id,
                    resource_type,
                    interest,
                    published,
                }
            });
        }

        is_answered
    }

    /// Calls the observer, if there is one.
    pub(super) fn notify(&mut self, event: impl FnOnce(&mut Self) -> Event) {
        if let Some(observer) = self.observer.clone() {
            observer.observe(event(self));
        }
    }

    /// Calls the observer after changes were applied and published.
    pub(super) fn notify_applied(&mut self, changes: Vec<Change>) {
        self.notify(|worker| Event::Applied {
            changes,
            context: worker.mesh_state.context(),
            before: worker.mesh_state.before(),
            revision: worker.engine.revision(),
            published: worker.engine.take_published(),
        });
    }

    /// Whether proxies are answered yet.
    pub(super) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }
}
