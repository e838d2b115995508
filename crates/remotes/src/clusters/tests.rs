use std::sync::Arc;

use navarch_push::testing::NoResources;
use navarch_push::worker::{self, Debounce};

use super::*;
use crate::status::ManagedCluster;

/// Clusters whose API servers accept no connection.
fn clusters() -> Clusters {
    let (push, _) = worker::prepare(
        navarch_api::settings::Settings::default(),
        Debounce::default(),
        Arc::new(NoResources),
        navarch_push::metrics::Metrics::default(),
        None,
    );

    Clusters {
        config: RemotesConfig::default(),
        own: ClusterId::new("config"),
        push,
        problems: Problems::default(),
        servers: RemoteServers::new(BTreeMap::new()),
        shown: ManagedClusters::default(),
        metrics: Metrics::default(),
        lead: Arc::new(|_, _, _| Box::pin(std::future::ready(()))),
        managed: BTreeMap::new(),
        waiting: WaitingKubeconfigs::default(),
        next: 0,
        places: BTreeSet::new(),
        readers: JoinSet::new(),
        stop: CancellationToken::new(),
    }
}

/// A kubeconfig of a cluster with this token.
fn kubeconfig_of(cluster: &str, token: &str) -> Kubeconfigs {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         users: [{{name: u, user: {{token: {token}}}}}]\n"
    );
    Kubeconfigs::from([(ClusterId::new(cluster), text.into_bytes())])
}

fn east(token: &str) -> Kubeconfigs {
    kubeconfig_of("east", token)
}

/// The clusters that are read, each with the Secret or file that is used.
fn used(clusters: &Clusters) -> Vec<String> {
    let shown = clusters.shown.list().into_iter();
    let text = |cluster: ManagedCluster| format!("{} by {}", cluster.id, cluster.place);
    shown.map(text).collect()
}

/// The cluster `east` as it is shown.
fn shown(place: &str, status: SyncStatus) -> [ManagedCluster; 1] {
    [ManagedCluster {
        id: ClusterId::new("east"),
        place: place.to_owned(),
        status,
    }]
}

#[tokio::test]
async fn the_next_kubeconfig_of_a_cluster_is_used_once_the_first_is_removed() {
    let mut clusters = clusters();
    let (news, _events) = mpsc::channel(8);

    clusters.put("ns/a", east("one"), &news).await;
    clusters.put("ns/b", east("two"), &news).await;
    clusters.put("ns/c", east("three"), &news).await;
    assert_eq!(clusters.shown.list(), shown("ns/a", SyncStatus::Syncing));

    clusters.put("ns/a", Kubeconfigs::new(), &news).await;
    assert_eq!(clusters.shown.list(), shown("ns/b", SyncStatus::Syncing));

    // The same if it names another cluster instead.
    let west = kubeconfig_of("west", "two");
    clusters.put("ns/b", west, &news).await;
    assert_eq!(used(&clusters), ["east by ns/c", "west by ns/b"]);

    clusters.put("ns/b", Kubeconfigs::new(), &news).await;
    clusters.put("ns/c", Kubeconfigs::new(), &news).await;
    assert_eq!(clusters.shown.list(), []);
}

#[tokio::test]
async fn files_that_exchange_their_clusters_are_both_used() {
    let mut clusters = clusters();
    let (news, _events) = mpsc::channel(8);

    clusters.put("a", east("one"), &news).await;
    clusters.put("b", kubeconfig_of("west", "two"), &news).await;
    clusters.put("a", kubeconfig_of("west", "two"), &news).await;
    assert_eq!(used(&clusters), ["west by b"]);

    clusters.put("b", east("one"), &news).await;
    assert_eq!(used(&clusters), ["east by b", "west by a"]);
}

#[tokio::test]
async fn objects_stay_until_the_next_kubeconfig_has_been_read() {
    let mut clusters = clusters();
    let (news, _events) = mpsc::channel(8);
    let id = ClusterId::new("east");

    clusters.put("ns/a", east("one"), &news).await;
    clusters.hear(&id, 1, Milestone::Synced).await;
    clusters.put("ns/b", east("two"), &news).await;
    clusters.put("ns/a", Kubeconfigs::new(), &news).await;

    let managed = &clusters.managed[&id];
    let serving = managed.serving.as_ref().map(|reader| reader.number);
    assert_eq!(serving, Some(1));
    let coming = managed.coming.as_ref().map(|reader| reader.number);
    assert_eq!(coming, Some(2));
    assert_eq!(clusters.shown.list(), shown("ns/b", SyncStatus::Synced));

    clusters.hear(&id, 2, Milestone::Synced).await;
    let managed = &clusters.managed[&id];
    let serving = managed.serving.as_ref().map(|reader| reader.number);
    assert_eq!(serving, Some(2));
}

#[tokio::test]
async fn a_secret_that_is_moved_is_not_read_again() {
    let mut clusters = clusters();
    let (news, _events) = mpsc::channel(8);

    clusters.put("ns/a", east("one"), &news).await;
    clusters.put("ns/b", east("one"), &news).await;
    clusters.put("ns/a", Kubeconfigs::new(), &news).await;

    assert_eq!(clusters.shown.list(), shown("ns/b", SyncStatus::Syncing));
    assert_eq!(clusters.next, 1, "one reader was started");
}

#[tokio::test]
async fn kubeconfigs_that_cannot_be_used_or_are_gone_are_passed_over() {
    let mut clusters = clusters();
    let (news, _events) = mpsc::channel(8);
    let unusable = Kubeconfigs::from([(ClusterId::new("east"), b"users: [".to_vec())]);

    clusters.put("ns/a", east("one"), &news).await;
    clusters.put("ns/b", unusable, &news).await;
    clusters.put("ns/c", east("two"), &news).await;
    clusters.put("ns/d", east("three"), &news).await;
    clusters.put("ns/c", Kubeconfigs::new(), &news).await;

    clusters.put("ns/a", Kubeconfigs::new(), &news).await;
    assert_eq!(clusters.shown.list(), shown("ns/d", SyncStatus::Syncing));
    clusters.put("ns/d", Kubeconfigs::new(), &news).await;
    assert_eq!(clusters.shown.list(), []);
}

#[tokio::test]
async fn controllers_restart_with_a_kubeconfig_that_changes_before_its_cluster_is_read() {
    let mut clusters = clusters();
    let (news, _events) = mpsc::channel(8);
    let leaders = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = leaders.clone();
    clusters.lead = Arc::new(move |_, _, leading| {
        seen.lock().push(leading);
        Box::pin(std::future::ready(()))
    });

    clusters.put("ns/a", east("one"), &news).await;
    clusters.put("ns/a", east("two"), &news).await;

    let cancelled: Vec<bool> = leaders
        .lock()
        .iter()
        .map(CancellationToken::is_cancelled)
        .collect();
    assert_eq!(cancelled, [true, false]);
}
