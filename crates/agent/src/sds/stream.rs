//! One SDS stream: its subscriptions and responses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::mesh::PrivateKeyProvider;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use prost_types::Any;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tonic::{Status, Streaming};

use super::{SdsConfig, answer};
use crate::secrets::{Secret, SecretWatch, Secrets};

/// A request of either protocol.
pub(super) struct Subscription {
    /// Names to subscribe to.
    subscribe: BTreeSet<String>,
    /// Names to unsubscribe from.
    unsubscribe: BTreeSet<String>,
    /// The error of the last response, if it was rejected.
    rejected: Option<String>,
}

/// A change to send.
pub(super) enum Change {
    Now(Any),
    /// The secret does not exist.
    Gone,
}

/// One of the two xDS protocols.
pub(super) trait Protocol: 'static {
    type Request: Send + 'static;
    type Response: Send + 'static;

    /// Reads a request. `watched` are the current subscriptions.
    fn subscription(
        request: Self::Request,
        watched: &BTreeMap<String, AbortHandle>,
    ) -> Subscription;

    /// The node, which only the first request of a stream has.
    fn node(request: &Self::Request) -> Option<&Node>;

    /// A response with one name; `None` if the protocol has no response for the change.
    fn answer(name: &str, change: Change, number: u64) -> Option<Self::Response>;
}

/// All names in every request, complete state in responses.
pub(super) struct StateOfTheWorld;

/// Incremental requests and responses.
pub(super) struct Delta;

impl Protocol for StateOfTheWorld {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn subscription(
        request: DiscoveryRequest,
        watched: &BTreeMap<String, AbortHandle>,
    ) -> Subscription {
        let names: BTreeSet<String> = request.resource_names.into_iter().collect();
        let unsubscribe = watched
            .keys()
            .filter(|name| !names.contains(*name))
            .cloned()
            .collect();
        Subscription {
            subscribe: names,
            unsubscribe,
            rejected: request.error_detail.map(|error| error.message),
        }
    }

    fn node(request: &DiscoveryRequest) -> Option<&Node> {
        request.node.as_ref()
    }

    fn answer(_: &str, change: Change, number: u64) -> Option<DiscoveryResponse> {
        let Change::Now(resource) = change else {
            return None;
        };
        Some(DiscoveryResponse {
            version_info: number.to_string(),
            nonce: number.to_string(),
            type_url: answer::TYPE_URL.to_owned(),
            resources: vec![resource],
            ..DiscoveryResponse::default()
        })
    }
}

impl Protocol for Delta {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn subscription(
        request: DeltaDiscoveryRequest,
        _: &BTreeMap<String, AbortHandle>,
    ) -> Subscription {
        Subscription {
            subscribe: request.resource_names_subscribe.into_iter().collect(),
            unsubscribe: request.resource_names_unsubscribe.into_iter().collect(),
            rejected: request.error_detail.map(|error| error.message),
        }
    }

    fn node(request: &DeltaDiscoveryRequest) -> Option<&Node> {
        request.node.as_ref()
    }

    fn answer(name: &str, change: Change, number: u64) -> Option<DeltaDiscoveryResponse> {
        let mut response = DeltaDiscoveryResponse {
            system_version_info: number.to_string(),
            nonce: number.to_string(),
            type_url: answer::TYPE_URL.to_owned(),
            ..DeltaDiscoveryResponse::default()
        };
        match change {
            Change::Now(resource) => response.resources.push(Resource {
                name: name.to_owned(),
                version: number.to_string(),
                resource: Some(resource),
                ..Resource::default()
            }),
            Change::Gone => response.removed_resources.push(name.to_owned()),
        }
        Some(response)
    }
}

/// The state of a stream.
struct Stream {
    /// The subscribed names, and the task that waits for each.
    watched: BTreeMap<String, AbortHandle>,
    /// The tasks, which end with the stream.
    waiting: JoinSet<()>,
    /// The channel of changes from the tasks. It has no queue, so that a task sends the newest
    /// value.
    changes: mpsc::Sender<(String, Arc<Secret>)>,
    /// Number of sent responses.
    sent: u64,
}

/// Serves a stream until Envoy ends it.
pub(super) async fn run<P: Protocol>(
    mut requests: Streaming<P::Request>,
    answers: mpsc::Sender<Result<P::Response, Status>>,
    secrets: Secrets,
    config: Arc<SdsConfig>,
) {
    let (changes, mut changed) = mpsc::channel(1);
    let mut hardware = config.hardware;
    let mut stream = Stream {
        watched: BTreeMap::new(),
        waiting: JoinSet::new(),
        changes,
        sent: 0,
    };

    loop {
        let answer = tokio::select! {
            request = requests.message() => match request {
                Ok(Some(request)) => {
                    hardware = hardware.filter(|hardware| {
                        P::node(&request).is_none_or(|node| can_use(node, hardware))
                    });
                    let subscription = P::subscription(request, &stream.watched);
                    match stream.apply_subscription(subscription, &secrets) {
                        Ok(()) => continue,
                        Err(name) => match P::answer(&name, Change::Gone, stream.next()) {
                            Some(answer) => Ok(answer),
                            None => Err(Status::not_found(format!("unknown secret {name:?}"))),
                        },
                    }
                }
                Ok(None) | Err(_) => return,
            },
            Some((name, secret)) = changed.recv() => {
                // The name may have been unsubscribed while the change waited.
                if !stream.watched.contains_key(&name) {
                    continue;
                }
                tracing::debug!(name, "secret sent");
                let resource = answer::resource(&name, &secret, &config, hardware);
                match P::answer(&name, Change::Now(resource), stream.next()) {
                    Some(answer) => Ok(answer),
                    None => continue,
                }
            }
            () = answers.closed() => return,
        };

        let last = answer.is_err();
        if answers.send(answer).await.is_err() || last {
            return;
        }
    }
}

/// Whether an Envoy supports this key hardware. One that does not list its extensions is assumed to
/// support it.
fn can_use(node: &Node, hardware: &PrivateKeyProvider) -> bool {
    let Some(wanted) = hardware.extension() else {
        return true;
    };
    let has = node.extensions.is_empty()
        || node
            .extensions
            .iter()
            .any(|extension| extension.name == wanted);
    if !has {
        tracing::warn!("privateKeyProvider is ignored: Envoy lacks the extension {wanted}");
    }
    has
}

impl Stream {
    /// The next response number.
    fn next(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// Applies a subscription. Returns the first name that the agent does not serve as the error.
    fn apply_subscription(
        &mut self,
        subscription: Subscription,
        secrets: &Secrets,
    ) -> Result<(), String> {
        if let Some(reason) = subscription.rejected {
            tracing::warn!(reason, "Envoy rejected a secret");
        }

        for name in subscription.unsubscribe {
            if let Some(task) = self.watched.remove(&name) {
                task.abort();
            }
        }

        for name in subscription.subscribe {
            if self.watched.contains_key(&name) {
                continue;
            }

            match secrets.watch(&name) {
                Ok(watch) => {
                    let task = self
                        .waiting
                        .spawn(wait(name.clone(), watch, self.changes.clone()));
                    self.watched.insert(name, task);
                }
                Err(error) => {
                    tracing::warn!(%error, "rejected a secret subscription");
                    return Err(name);
                }
            }
        }

        Ok(())
    }
}

/// Sends every value of a secret.
async fn wait(name: String, mut watch: SecretWatch, changes: mpsc::Sender<(String, Arc<Secret>)>) {
    watch.mark_changed();
    while watch.changed().await.is_ok() {
        let Ok(permit) = changes.reserve().await else {
            return;
        };
        let Some(secret) = watch.borrow_and_update().clone() else {
            continue;
        };
        permit.send((name.clone(), secret));
    }
}
