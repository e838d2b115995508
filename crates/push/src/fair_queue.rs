//! Start-time fair queueing of subscriptions, and of questions about the size of a proxy's routes
//! when its stream starts, by client address; the streams of one client are served round robin.
//!
//! The client that has used the least time of the push thread is served next. A client with a
//! thousand streams, or with an expensive subscription, therefore delays the others by one time
//! slice at a time.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::engine::{Interest, ProxyId};
use super::resource::ResourceType;
use navarch_tables::hash::KeyedMap;

/// Factor by which the time of streams without a verified identity counts.
const UNVERIFIED_COST_FACTOR: u32 = 4;
/// Maximum number of idle clients, in addition to clients with work, before idle ones are purged.
const MAX_IDLE_CLIENTS: usize = 1024;

/// Streams with unanswered subscriptions, in the order of service.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    streams: KeyedMap<ProxyId, Stream>,
    /// Clients that have work, or had some recently.
    clients: KeyedMap<Client, ClientQueue>,
    /// Clients with work, by the time that they have used; equal ones by order of arrival.
    order: BTreeSet<(Duration, u64, Client)>,
    /// Time used by the client in service, before this turn. New clients start with at least this
    /// value.
    now: Duration,
    /// Counts arrivals, to order clients with equal times.
    arrivals: u64,
}

/// The peer address of a stream; `None` in tests.
type Client = Option<IpAddr>;

#[derive(Debug)]
struct Stream {
    client: Client,
    /// Whether the client has a verified identity.
    is_proved: bool,
    /// Unanswered requests; of subscriptions at most one of each type.
    waiting: VecDeque<Waiting>,
}

/// An unanswered request of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Subscription(Subscription),
    /// Whether the proxy has large routes.
    RouteSize,
}

/// An unanswered subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) resource_type: ResourceType,
    /// The subscription; `None` if the client has unsubscribed since.
    pub(super) interest: Option<Interest>,
    /// Number of subscriptions that the answer covers: this one and those that it replaced.
    pub(super) answers: u32,
}

impl Waiting {
    /// The subscription, if it is one to this type.
    fn subscription_to(&mut self, resource_type: ResourceType) -> Option<&mut Subscription> {
        match self {
            Self::Subscription(subscription) if subscription.resource_type == resource_type => {
                Some(subscription)
            }
            Self::Subscription(_) | Self::RouteSize => None,
        }
    }
}

/// The streams of a client that have work.
#[derive(Debug, Default)]
struct ClientQueue {
    /// The time that the client has used.
    used: Duration,
    /// Its position among clients with equal time; `None` while it has no work.
    place: Option<u64>,
    /// The streams, next one first. May contain ended streams.
    streams: VecDeque<ProxyId>,
}

impl FairQueue {
    /// Adds a stream.
    pub(super) fn connect(&mut self, id: ProxyId, client: Option<IpAddr>, is_proved: bool) {
        self.streams.insert(
            id,
            Stream {
                client,
                is_proved,
                waiting: VecDeque::new(),
            },
        );
    }

    /// Removes a stream.
    pub(super) fn disconnect(&mut self, id: ProxyId) {
        self.streams.remove(&id);
    }

    /// Queues a subscription of a stream. It replaces the stream's unanswered subscription of the
    /// same type.
    pub(super) fn subscribe(
        &mut self,
        id: ProxyId,
        resource_type: ResourceType,
        interest: Interest,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };

        if let Some(subscription) = stream
            .waiting
            .iter_mut()
            .find_map(|waiting| waiting.subscription_to(resource_type))
        {
            subscription.interest = Some(interest);
            subscription.answers = subscription.answers.saturating_add(1);
            return;
        }

        let subscription = Subscription {
            resource_type,
            interest: Some(interest),
            answers: 1,
        };
        self.append(id, Waiting::Subscription(subscription));
    }

    /// Queues the question whether a stream's proxy has large routes.
    pub(super) fn ask_route_size(&mut self, id: ProxyId) {
        self.append(id, Waiting::RouteSize);
    }

    /// Ends a stream's subscription of a type. Returns true if no subscription of the type is
    /// waiting: it can then be removed at once.
    pub(super) fn unsubscribe(&mut self, id: ProxyId, resource_type: ResourceType) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        let subscription = stream
            .waiting
            .iter_mut()
            .find_map(|waiting| waiting.subscription_to(resource_type));
        subscription
            .map(|subscription| subscription.interest = None)
            .is_none()
    }

    /// Whether no stream is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The stream to serve next, and its request. The caller must then call
    /// [`FairQueue::used`].
    pub(super) fn next(&mut self) -> Option<(ProxyId, Waiting)> {
        while let Some((used, _, client)) = self.order.pop_first() {
            self.now = self.now.max(used);
            let Some(line) = self.clients.get_mut(&client) else {
                continue;
            };
            line.place = None;
            while let Some(id) = line.streams.pop_front() {
                if let Some(waiting) = self
                    .streams
                    .get(&id)
                    .and_then(|stream| stream.waiting.front())
                {
                    return Some((id, waiting.clone()));
                }
            }
        }
        None
    }

    /// Accounts the time that a stream used for its first waiting request, which is either
    /// answered or continued later.
    pub(super) fn used(&mut self, id: ProxyId, time: Duration, is_answered: bool) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };

        if is_answered {
            stream.waiting.pop_front();
        }

        let client = stream.client;
        let has_more = !stream.waiting.is_empty();
        let time = if stream.is_proved {
            time
        } else {
            time * UNVERIFIED_COST_FACTOR
        };

        if let Some(line) = self.clients.get_mut(&client) {
            line.used = line.used.saturating_add(time);
            let next = line.streams.front().copied();
            match (has_more, next) {
                (true, _) => self.enqueue(client, id),
                (false, Some(_)) => self.place(client),
                (false, None) => {}
            }
        }

        if self.order.is_empty() {
            // No client is waiting, so used times no longer matter.
            self.clients = KeyedMap::default();
        } else if self.clients.len() > 2 * self.order.len() + MAX_IDLE_CLIENTS {
            let now = self.now;
            self.clients
                .retain(|_, line| line.place.is_some() || line.used > now);
        }
    }

    /// Appends a request to those of a stream.
    fn append(&mut self, id: ProxyId, waiting: Waiting) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.waiting.push_back(waiting);
        if stream.waiting.len() == 1 {
            let client = stream.client;
            self.enqueue(client, id);
        }
    }

    /// Appends a stream to its client's queue.
    fn enqueue(&mut self, client: Client, id: ProxyId) {
        self.clients
            .entry(client)
            .or_default()
            .streams
            .push_back(id);
        self.place(client);
    }

    /// Inserts a client into the clients with work.
    fn place(&mut self, client: Client) {
        let Some(line) = self
            .clients
            .get_mut(&client)
            .filter(|line| line.place.is_none())
        else {
            return;
        };
        self.arrivals += 1;
        line.used = line.used.max(self.now);
        line.place = Some(self.arrivals);
        self.order.insert((line.used, self.arrivals, client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn client(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    fn wants(queue: &mut FairQueue, id: u64, resource_type: ResourceType) {
        queue.subscribe(
            ProxyId::of(id),
            resource_type,
            Interest {
                wildcard: true,
                ..Interest::default()
            },
        );
    }

    /// The clients of the next turns, each of which takes a millisecond without an answer.
    fn order(queue: &mut FairQueue, count: usize) -> Vec<ProxyId> {
        let turn = |_| {
            let (id, _) = queue.next().unwrap();
            queue.used(id, MS, false);
            id
        };
        (0..count).map(turn).collect()
    }

    #[test]
    fn a_client_with_many_streams_gets_no_more_than_one_with_one() {
        let mut queue = FairQueue::default();
        for id in 0..100 {
            queue.connect(ProxyId::of(id), client(1), true);
            wants(&mut queue, id, ResourceType::Cluster);
        }
        queue.connect(ProxyId::of(200), client(2), true);
        assert_eq!(order(&mut queue, 10).len(), 10);
        wants(&mut queue, 200, ResourceType::Cluster);
        let next = order(&mut queue, 20);
        assert_eq!(
            next.iter().filter(|id| **id == ProxyId::of(200)).count(),
            10,
            "{next:?}"
        );
        let others: BTreeSet<&ProxyId> =
            next.iter().filter(|id| **id != ProxyId::of(200)).collect();
        assert_eq!(others.len(), 10, "streams of a client take turns");
    }

    #[test]
    fn the_unproved_get_a_smaller_share() {
        let mut queue = FairQueue::default();
        for (id, is_proved) in [(1, false), (2, true)] {
            queue.connect(
                ProxyId::of(id),
                client(u8::try_from(id).unwrap()),
                is_proved,
            );
            wants(&mut queue, id, ResourceType::Cluster);
        }
        let unproved = order(&mut queue, 50)
            .iter()
            .filter(|id| **id == ProxyId::of(1))
            .count();
        assert_eq!(unproved, 50 / 5);
    }

    #[test]
    fn a_returning_client_queues_behind_waiting_ones() {
        let mut queue = FairQueue::default();

        for id in [1, 2, 3] {
            queue.connect(ProxyId::of(id), client(u8::try_from(id).unwrap()), true);
            wants(&mut queue, id, ResourceType::Cluster);
        }

        let mut served = Vec::new();

        for _ in 0..9 {
            let (id, _) = queue.next().unwrap();
            // The first asks for much, is answered and asks again at once.
            queue.used(
                id,
                if id == ProxyId::of(1) { 50 * MS } else { MS },
                id == ProxyId::of(1),
            );
            wants(&mut queue, 1, ResourceType::Cluster);
            served.push(id);
        }

        assert_eq!(
            served.iter().filter(|id| **id == ProxyId::of(1)).count(),
            1,
            "{served:?}"
        );
    }

    #[test]
    fn a_superseded_request_gets_the_result_of_its_replacement() {
        let mut queue = FairQueue::default();
        queue.connect(ProxyId::of(1), None, true);

        for resource_type in [
            ResourceType::Cluster,
            ResourceType::Endpoint,
            ResourceType::Cluster,
        ] {
            wants(&mut queue, 1, resource_type);
        }

        assert!(!queue.unsubscribe(ProxyId::of(1), ResourceType::Endpoint));
        assert!(queue.unsubscribe(ProxyId::of(1), ResourceType::Listener));
        let mut waiting = || {
            let (id, waiting) = queue.next()?;
            queue.used(id, MS, true);
            let Waiting::Subscription(answered) = waiting else {
                panic!("{waiting:?}");
            };
            Some((
                answered.resource_type,
                answered.interest.is_some(),
                answered.answers,
            ))
        };
        assert_eq!(waiting(), Some((ResourceType::Cluster, true, 2)));

        assert_eq!(waiting(), Some((ResourceType::Endpoint, false, 1)));
        assert_eq!(waiting(), None);
    }

    #[test]
    fn nothing_is_left_of_streams_and_clients_that_went() {
        let mut queue = FairQueue::default();

        for id in 0..10_000_u32 {
            let client = Some(IpAddr::from(id.to_be_bytes()));
            let id = u64::from(id);
            queue.connect(ProxyId::of(id), client, false);
            wants(&mut queue, id, ResourceType::Cluster);
            if id % 2 == 0 {
                queue.disconnect(ProxyId::of(id));
            }
            while let Some((id, _)) = queue.next() {
                queue.used(id, MS, true);
                queue.disconnect(id);
            }
        }

        assert!(queue.streams.is_empty() && queue.is_empty());
        assert!(
            queue.clients.len() <= MAX_IDLE_CLIENTS + 1,
            "{}",
            queue.clients.len()
        );
    }
}
