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

/// Longer than the machine may be busy with other work.
const TTL: Duration = Duration::from_secs(8);

/// A control plane that takes part in the election.
struct Replica {
    leads: Arc<AtomicBool>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Replica {
    async fn start(
        deployed: &Deployed,
        name: &str,
        revision: &str,
        default_revision: watch::Receiver<String>,
    ) -> Self {
        let candidate = Candidate {
            identity: name.to_owned(),
            revision: revision.to_owned(),
            location: Location::Local,
        };
        let cluster = deployed.as_navarch().await;
        let mut election = Election::new(
            &cluster,
            NAMESPACE,
            Lock::Namespaces,
            candidate,
            default_revision,
        );

        election.timing = Timing { ttl: TTL };
        let leads = Arc::new(AtomicBool::new(false));
        let stop = CancellationToken::new();
        let flag = leads.clone();
        let token = stop.clone();
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

/// istiod's lock: a ConfigMap whose annotation has the leader record.
const LOCK: &str = "istio-namespace-controller-election";
const RECORD: &str = "control-plane.alpha.kubernetes.io/leader";

/// The leader record in the lock.
async fn record(deployed: &Deployed) -> Value {
    let map = deployed
        .get(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{LOCK}"))
        .await;
    serde_json::from_str(map["metadata"]["annotations"][RECORD].as_str().unwrap()).unwrap()
}

/// The holder of the lock.
async fn holder(deployed: &Deployed) -> Value {
    record(deployed).await["holderIdentity"].clone()
}

/// The number of requests of a control plane to read the lock.
fn looks(deployed: &Deployed) -> usize {
    deployed
        .requests(&format!(
            "\"get\" /api/v1/namespaces/{NAMESPACE}/configmaps/{LOCK}"
        ))
        .len()
}

/// Waits until the holder has renewed the lock twice; a waiting candidate reads it as often as the
/// holder renews it.
async fn is_renewed_twice(deployed: &Deployed, name: &str) {
    for _ in 0..2 {
        let before = record(deployed).await["renewTime"].clone();
        until("the lock is renewed", async || {
            record(deployed).await["renewTime"] != before
        })
        .await;
        assert_eq!(holder(deployed).await, name);
    }
}

/// Writes a leader record into the lock as istiod does.
fn write(deployed: &Deployed, holder: &str, second: u32) {
    let record = json!({
        "holderIdentity": holder, "holderKey": "default", "leaseDurationSeconds": 30,
        "acquireTime": "2026-08-01T10:00:00Z", "renewTime": format!("2026-08-01T10:00:{second:02}Z"), "leaderTransitions": 3,
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": LOCK, "namespace": NAMESPACE, "annotations": {RECORD: record.to_string()}},
    });
    deployed.cluster.apply(&map.to_string()).unwrap();
}

pub(crate) async fn wait_for_an_istiod_that_leads(deployed: &Deployed) {
    write(deployed, "istiod-0", 0);
    let (_sender, default_revision) = watch::channel(String::new());
    let replica = Replica::start(deployed, "navarch-0", "default", default_revision).await;

    // It reads the lock four times within its lease duration.
    for second in 1..=6 {
        let looks = looks(deployed);
        until("it looks at the lock", async || {
            self::looks(deployed) > looks
        })
        .await;
        assert!(!replica.leads(), "istiod still renews the lock");
        assert_eq!(holder(deployed).await, "istiod-0");
        write(deployed, "istiod-0", second);
    }

    // istiod stops and releases the lock.
    write(deployed, "", 5);
    until("Navarch leads", async || replica.leads()).await;
    let record = record(deployed).await;
    assert_eq!(
        (&record["holderIdentity"], &record["leaderTransitions"]),
        (&json!("navarch-0"), &json!(4))
    );

    replica.stop.cancel();
    replica.task.await.unwrap();
    assert_eq!(holder(deployed).await, "");
}

pub(crate) async fn hand_over_and_are_preempted(deployed: &Deployed) {
    let (sender, default_revision) = watch::channel(String::new());
    let follow = DefaultRevision {
        cluster: deployed.as_navarch().await,
        namespace: NAMESPACE.to_owned(),
    };
    let follower = CancellationToken::new();
    let following = tokio::spawn(follow.run(sender, follower.clone()));

    let first = Replica::start(deployed, "first", "green", default_revision.clone()).await;
    until("the first leads", async || first.leads()).await;
    let second = Replica::start(deployed, "second", "green", default_revision.clone()).await;
    is_renewed_twice(deployed, "first").await;
    assert!(first.leads() && !second.leads());

    // A replica that stops releases the lease, so that the next one need not wait until it expires.
    first.stop.cancel();
    first.task.await.unwrap();
    assert_ne!(holder(deployed).await, "first");
    until("the second leads", async || second.leads()).await;
    assert_eq!(holder(deployed).await, "second");

    // A replica of another revision takes over the lock once its revision is the default one.
    let blue = Replica::start(deployed, "blue", "blue", default_revision.clone()).await;
    is_renewed_twice(deployed, "second").await;
    assert!(second.leads() && !blue.leads());
    let tag = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "istio-revision-tag-default", "labels": { "istio.io/rev": "blue" } },
    });
    deployed.cluster.apply(&tag.to_string()).unwrap();

    until("blue leads", async || blue.leads()).await;
    until("the second no longer leads", async || !second.leads()).await;

    for replica in [second, blue] {
        replica.stop.cancel();
        replica.task.await.unwrap();
    }

    assert_eq!(holder(deployed).await, "");
    follower.cancel();
    following.await.unwrap();
}
