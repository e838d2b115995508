//! Leader election.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use navarch::status::{Candidate, DefaultRevision, Election, Location, Lock, Timing};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, NAMESPACE, until};

/// Longer than the machine may be busy with other things.
const TTL: Duration = Duration::from_secs(8);

/// A control plane that stands for election.
struct Replica {
    /// Whether it leads.
    leads: Arc<AtomicBool>,
    /// Ends it.
    stop: CancellationToken,
    /// Its task.
    task: JoinHandle<()>,
}

impl Replica {
    /// Starts a replica.
    async fn start(deployed: &Deployed, name: &str, revision: &str, default_revision: watch::Receiver<String>) -> Self {
        let candidate =
            Candidate { identity: name.to_owned(), revision: revision.to_owned(), location: Location::Local };
        let cluster = deployed.as_navarch().await;
        let mut election = Election::new(&cluster, NAMESPACE, Lock::Namespaces, candidate, default_revision);
        election.timing = Timing { ttl: TTL };
        let (leads, stop) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let (flag, token) = (leads.clone(), stop.clone());
        let task = tokio::spawn(election.run(token, move |led| {
            let flag = flag.clone();
            async move {
                flag.store(true, Ordering::SeqCst);
                led.cancelled().await;
                flag.store(false, Ordering::SeqCst);
            }
        }));
        Self { leads, stop, task }
    }

    fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }
}

/// Who holds the Lease.
async fn holder(deployed: &Deployed) -> Value {
    let path =
        format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/istio-namespace-controller-election");
    deployed.get(&path).await["spec"]["holderIdentity"].clone()
}

pub(crate) async fn hand_over_and_are_preempted(deployed: &Deployed) {
    let (told, default_revision) = watch::channel(String::new());
    let follow = DefaultRevision { cluster: deployed.as_navarch().await, namespace: NAMESPACE.to_owned() };
    let follower = CancellationToken::new();
    let following = tokio::spawn(follow.run(told, follower.clone()));

    let first = Replica::start(deployed, "first", "green", default_revision.clone()).await;
    until("the first leads", async || first.leads()).await;
    let second = Replica::start(deployed, "second", "green", default_revision.clone()).await;
    tokio::time::sleep(TTL / 2).await;
    assert!(first.leads() && !second.leads());

    // A replica that ends gives the lease back: nobody waits for it to run out.
    first.stop.cancel();
    first.task.await.unwrap();
    assert_ne!(holder(deployed).await, "first");
    until("the second leads", async || second.leads()).await;
    assert_eq!(holder(deployed).await, "second");

    // Another revision waits until it is the default one, and then does not.
    let blue = Replica::start(deployed, "blue", "blue", default_revision.clone()).await;
    tokio::time::sleep(TTL / 2).await;
    assert!(second.leads() && !blue.leads());
    let tag = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "istio-revision-tag-default", "labels": { "istio.io/rev": "blue" } },
    });
    deployed.cluster.apply(&tag.to_string()).unwrap();
    until("blue leads", async || blue.leads()).await;
    until("the second leads no more", async || !second.leads()).await;

    for replica in [second, blue] {
        replica.stop.cancel();
        replica.task.await.unwrap();
    }
    assert_eq!(holder(deployed).await, "");
    follower.cancel();
    following.await.unwrap();
}
