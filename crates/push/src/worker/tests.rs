//! The push thread with clients that request much, and that disconnect while it is busy.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::task::JoinSet;

use super::removals::REMOVAL_DELAY;
use super::*;
use crate::engine::PushCause;
use crate::learned::LearnedChange;
use crate::proxy::Locality;
use crate::resource::Collection;
use crate::view::View;
use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, decode_value};
use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch_api::names::{Hostname, Namespace, ResourceName, ServiceAccount};

/// A translator that takes a while for each resource.
struct Slow;

impl Translator for Slow {
    fn names(&self, _: ResourceType, _: &View<'_>) -> Vec<ResourceName> {
        Vec::new()
    }

    fn resource(&self, _: ResourceType, name: &ResourceName, _: &View<'_>) -> Option<Bytes> {
        std::thread::sleep(Duration::from_millis(1));
        Some(Bytes::copy_from_slice(name.as_str().as_bytes()))
    }

    fn has_large_routes(&self, view: &View<'_>) -> bool {
        std::thread::sleep(Duration::from_millis(5));
        !view.proxy().ips().is_empty()
    }
}

/// Records that its request was executed.
#[derive(Default)]
struct Answered(AtomicBool);

impl Sink for Answered {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Answered {
    fn is(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

async fn started() -> PushHandle {
    let (push, _) = start(Settings::default(), Debounce::default(), Arc::new(Slow)).unwrap();
    push.full_sync().await.unwrap();
    push.wait_synced().await.unwrap();
    push
}

fn proxy(last: u8) -> Arc<Proxy> {
    let id = format!("sidecar~10.0.0.{last}~web.shop~shop.svc.cluster.local");
    Arc::new(Proxy::parse(&id, serde_json::Value::Null, Locality::default()).unwrap())
}

async fn stream(push: &PushHandle, last: u8) -> (ProxyId, Arc<Answered>) {
    let proxy = proxy(last);
    let sink = Arc::new(Answered::default());
    let address = Some(IpAddr::from([10, 0, 0, last]));
    (
        push.connect(proxy, address, sink.clone()).await.unwrap(),
        sink,
    )
}

fn names(prefix: &str, count: usize) -> Interest {
    let names: BTreeSet<ResourceName> = (0..count)
        .map(|n| ResourceName::new(format!("{prefix}-{n}")))
        .collect();
    Interest {
        wildcard: false,
        names: Arc::new(names),
    }
}

/// Waits until a condition on the thread's state holds.
async fn until(push: &PushHandle, is_so: impl Fn(&Inspect<'_>) -> bool + Clone + Send + 'static) {
    let waiting = async {
        loop {
            let is_so = is_so.clone();
            if push.inspect(move |inspect| is_so(inspect)).await.unwrap() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .expect("the condition never became true");
}

/// An object that is added.
fn added(kind: &str, name: &str) -> Change {
    let metadata = serde_json::json!({ "name": name, "namespace": "shop" });
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {},
    });
    Change::Put(decoded(&object))
}

/// The object of a JSON value.
fn decoded(object: &serde_json::Value) -> AnyObject {
    match decode_value(object).1 {
        Outcome::Read { object, .. } => object,
        other @ (Outcome::Ignored | Outcome::Rejected(_)) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn pods_alone_wait_for_the_rest_of_the_initial_state() {
    let (push, _) = start(Settings::default(), Debounce::default(), Arc::new(Slow)).unwrap();
    let pods = |inspect: &Inspect<'_>| inspect.engine.context().objects.pods.len();

    push.change(vec![added("Pod", "a")]).await.unwrap();
    for _ in 0..100 {
        assert_eq!(push.inspect(pods).await.unwrap(), 0);
    }

    let account = added("ServiceAccount", "a");
    push.change(vec![account]).await.unwrap();
    until(&push, move |inspect| pods(inspect) == 1).await;

    push.change(vec![added("Pod", "b")]).await.unwrap();
    push.full_sync().await.unwrap();
    push.wait_synced().await.unwrap();
    assert_eq!(push.context().objects.pods.len(), 2);

    push.change(vec![added("Pod", "c")]).await.unwrap();
    until(&push, move |inspect| pods(inspect) == 3).await;
}

#[tokio::test]
async fn a_heavy_client_delays_neither_others_nor_changes() {
    let push = started().await;

    // Streams of one client, each of which requests nearly half a second of work.
    let mut greedy = Vec::new();

    for number in 0..5 {
        let (id, sink) = stream(&push, 1).await;
        push.subscribe(
            id,
            ResourceType::Endpoint,
            names(&format!("much-{number}"), 400),
        )
        .await
        .unwrap();
        greedy.push(sink);
    }

    let (modest, answered) = stream(&push, 2).await;
    push.subscribe(modest, ResourceType::Endpoint, names("little", 3))
        .await
        .unwrap();
    let seen = answered.clone();
    until(&push, move |_| seen.is()).await;
    let done = greedy.iter().filter(|sink| sink.is()).count();
    assert_eq!(
        done, 0,
        "the large earlier requests continue after the small one"
    );

    until(&push, move |_| greedy.iter().all(|sink| sink.is())).await;
}

/// Keeps the thread busy until it is released.
async fn keep_busy(push: &PushHandle) -> (std::sync::mpsc::Sender<()>, JoinSet<()>) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (blocked, is_blocked) = oneshot::channel();
    let push = push.clone();
    let mut busy = JoinSet::new();
    busy.spawn(async move {
        let block = move |_: &Inspect<'_>| {
            blocked.send(()).unwrap();
            released.recv().unwrap();
        };
        push.inspect(block).await.unwrap();
    });
    is_blocked.await.unwrap();
    (release, busy)
}

#[tokio::test]
async fn streams_that_end_while_the_thread_is_busy_take_no_threads_and_are_forgotten() {
    let push = started().await;
    let (last, _) = stream(&push, 1).await;
    let (release, mut busy) = keep_busy(&push).await;
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for number in 0..2 * u64::try_from(COMMAND_QUEUE_SIZE).unwrap() {
        push.disconnect(ProxyId::of(1_000_000 + number));
    }
    push.disconnect(last);
    let after = threads();
    assert!(after < before + 1000, "{before} threads became {after}");
    release.send(()).unwrap();
    busy.join_next().await.unwrap().unwrap();
    until(&push, |inspect| inspect.engine.sizes().subscribers == 0).await;
    assert!(push.ended_streams.take().is_empty());
}

#[tokio::test]
async fn a_stream_cancelled_while_connecting_leaves_no_proxy() {
    let push = started().await;
    let (release, mut busy) = keep_busy(&push).await;
    let mut connecting = Box::pin(stream(&push, 1));
    assert!(connecting.as_mut().now_or_never().is_none());
    release.send(()).unwrap();
    busy.join_next().await.unwrap().unwrap();
    until(&push, |inspect| inspect.engine.sizes().subscribers == 1).await;
    drop(connecting);
    until(&push, |inspect| inspect.engine.sizes().subscribers == 0).await;
}

#[tokio::test]
async fn a_client_that_asks_for_sizes_of_routes_does_not_delay_others() {
    const QUESTIONS: usize = 100;
    let push = started().await;
    let address = Some(IpAddr::from([10, 0, 0, 1]));
    let answered = Arc::new(AtomicUsize::new(0));

    // Each has a proxy of its own, so that none finds the result of another.
    let mut questions = JoinSet::new();
    for number in 0..QUESTIONS {
        let push = push.clone();
        let answered = answered.clone();
        questions.spawn(async move {
            let asked = proxy(u8::try_from(number).unwrap());
            assert!(push.has_large_routes(asked, address).await.unwrap());
            answered.fetch_add(1, Ordering::AcqRel);
        });
    }
    let is_asked = |inspect: &Inspect<'_>| inspect.engine.proxies().len() > QUESTIONS / 2;
    until(&push, is_asked).await;

    let (modest, sink) = stream(&push, 200).await;
    push.subscribe(modest, ResourceType::Endpoint, names("little", 1))
        .await
        .unwrap();
    let has_answer = sink.clone();
    until(&push, move |_| has_answer.is()).await;
    let before = answered.load(Ordering::Acquire);
    assert!(before < QUESTIONS / 2, "after {before} questions");

    // Nothing is left of those whose streams end before the answer.
    questions.abort_all();
    until(&push, |inspect| inspect.engine.proxies().len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_workloads_learn_delays_no_other_change() {
    let debounce = Debounce {
        after: Duration::from_millis(100),
        max: Duration::from_secs(10),
    };
    let slow = Arc::new(Slow);
    let metrics = Metrics::default();
    let (push, work) = prepare(Settings::default(), debounce, slow, metrics, None);
    let mut worker = JoinSet::new();
    worker.spawn(work);
    push.full_sync().await.unwrap();

    let roots = Arc::from([Arc::from("root")]);
    push.change(vec![Change::TrustBundle(roots)]).await.unwrap();
    for number in 0..10 {
        let workload = LearnedWorkload {
            namespace: Namespace::new("shop"),
            account: ServiceAccount::new("web"),
            name: Arc::from("web"),
        };
        let hosts = LearnedHosts::from([Hostname::new(format!("h{number}.example"))]);
        let learned = Change::Learned(workload, LearnedChange::Add(hosts));
        push.change(vec![learned]).await.unwrap();
        tokio::time::sleep(debounce.after / 2).await;
    }

    assert_eq!(push.context().trust_bundle.len(), 1);
}

/// A push thread with an empty mesh, on the time of the test.
async fn on_paused_time() -> (PushHandle, JoinSet<()>) {
    let (push, work) = prepare(
        Settings::default(),
        Debounce::default(),
        Arc::new(Slow),
        Metrics::default(),
        None,
    );
    let mut worker = JoinSet::new();
    worker.spawn(work);
    push.full_sync().await.unwrap();
    (push, worker)
}

/// A policy that allows nothing.
fn policy() -> AnyObject {
    decoded(&serde_json::json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": { "name": "nothing", "namespace": "shop" },
        "spec": {},
    }))
}

/// A VirtualService that gives requests this timeout.
fn route(timeout: &str) -> AnyObject {
    let to_web = serde_json::json!({ "destination": { "host": "web" } });
    decoded(&serde_json::json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "hosts": ["web"],
            "http": [{ "route": [to_web], "timeout": timeout }],
        },
    }))
}

#[tokio::test(start_paused = true)]
async fn configuration_that_is_deleted_and_created_again_is_in_force_meanwhile() {
    for object in [policy(), route("1s")] {
        let (push, _worker) = on_paused_time().await;
        let name = object.object_ref();
        push.change(vec![Change::Put(object.clone())])
            .await
            .unwrap();

        push.change(vec![Change::Removed(name.clone())])
            .await
            .unwrap();
        tokio::time::sleep(REMOVAL_DELAY / 2).await;
        assert!(push.context().objects.contains(&name), "{name}");

        push.change(vec![Change::Put(object)]).await.unwrap();
        tokio::time::sleep(REMOVAL_DELAY * 2).await;
        assert!(push.context().objects.contains(&name), "{name}");

        push.change(vec![Change::Removed(name.clone())])
            .await
            .unwrap();
        tokio::time::sleep(REMOVAL_DELAY * 2).await;
        assert!(!push.context().objects.contains(&name), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_deleted_and_created_anew_is_one_push() {
    let (push, _worker) = on_paused_time().await;
    let pushes = |inspect: &Inspect<'_>| inspect.pushes.len();
    push.change(vec![Change::Put(route("1s"))]).await.unwrap();
    tokio::time::sleep(REMOVAL_DELAY).await;
    let before = push.inspect(pushes).await.unwrap();

    let edited = route("2s");
    let name = edited.object_ref();
    push.change(vec![Change::Removed(name.clone())])
        .await
        .unwrap();
    tokio::time::sleep(REMOVAL_DELAY / 2).await;
    push.change(vec![Change::Put(edited.clone())])
        .await
        .unwrap();
    tokio::time::sleep(REMOVAL_DELAY * 2).await;

    assert_eq!(push.inspect(pushes).await.unwrap(), before + 1);
    let in_force = push.context().objects.any(&name).unwrap();
    assert!(in_force.same_content(&edited));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_is_removed_at_once() {
    let (push, _worker) = on_paused_time().await;
    let pod = added("Pod", "web-1");
    let Change::Put(object) = &pod else {
        panic!("{pod:?}");
    };
    let name = object.object_ref();
    push.change(vec![pod]).await.unwrap();
    tokio::time::sleep(REMOVAL_DELAY).await;
    assert!(push.context().objects.contains(&name));

    push.change(vec![Change::Removed(name.clone())])
        .await
        .unwrap();
    tokio::time::sleep(REMOVAL_DELAY / 2).await;
    assert!(!push.context().objects.contains(&name));
}
