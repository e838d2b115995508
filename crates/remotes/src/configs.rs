//! The sources of kubeconfigs of remote clusters: Secrets with a label, or files of a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;

use super::kubeconfig;
use navarch_api::names::ClusterId;
use navarch_base::blocking;
use navarch_base::regular_file;
use navarch_kubernetes::InWords;

/// The label of Secrets with kubeconfigs.
const SECRET_LABEL: &str = "istio/multiCluster=true";

/// Poll interval of the directory.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum size of a file. Kubeconfigs have a few KiB.
const MAX_FILE: u64 = 1 << 20;

pub(super) type Kubeconfigs = BTreeMap<ClusterId, Vec<u8>>;

/// The kubeconfigs of files, by file name.
type Files = BTreeMap<String, Kubeconfigs>;

/// Why files are ignored, by file name.
type Faults = BTreeMap<String, String>;

/// Events of Secrets and files.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum ConfigEvent {
    /// One is new or has changed. Its name is `<namespace>/<name>` or the file's.
    Put(String, Kubeconfigs),
    Gone(String),
    /// All initial kubeconfigs were sent.
    Synced,
}

/// The receiver is closed.
pub(super) struct Closed;

/// Sends the Secrets of a namespace until the receiver is closed.
pub(super) async fn follow_secrets(
    client: kube::Client,
    namespace: &str,
    events: mpsc::Sender<ConfigEvent>,
) -> Result<(), Closed> {
    let secrets = Api::<Secret>::namespaced(client, namespace);
    let mut stream = std::pin::pin!(
        watcher(secrets, watcher::Config::default().labels(SECRET_LABEL)).default_backoff()
    );
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let name = |secret: &Secret| {
        format!(
            "{}/{}",
            secret.namespace().unwrap_or_default(),
            secret.name_any()
        )
    };

    while let Some(event) = stream.next().await {
        let mut batch = Vec::new();

        match event {
            Ok(Event::Init) => seen.clear(),
            Ok(Event::InitApply(secret)) | Ok(Event::Apply(secret)) => {
                let place = name(&secret);
                seen.insert(place.clone());
                known.insert(place.clone());
                batch.push(ConfigEvent::Put(place, kubeconfigs(secret)));
            }
            Ok(Event::InitDone) => {
                let gone: Vec<String> = known.difference(&seen).cloned().collect();
                known.retain(|place| seen.contains(place));
                batch.extend(gone.into_iter().map(ConfigEvent::Gone));
                batch.push(ConfigEvent::Synced);
            }
            Ok(Event::Delete(secret)) => {
                let place = name(&secret);
                known.remove(&place);
                batch.push(ConfigEvent::Gone(place));
            }
            Err(error) => {
                tracing::warn!(error = %InWords(&error), namespace, "failed to read the Secrets of remote clusters");
                // Without access to Secrets there are none.
                batch.extend(is_forbidden(&error).then_some(ConfigEvent::Synced));
            }
        }

        for event in batch {
            events.send(event).await.map_err(|_| Closed)?;
        }
    }

    Ok(())
}

/// Whether the API server forbids reading Secrets.
fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) =
        error
    else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// The kubeconfigs in a Secret: each key is the name of a cluster.
fn kubeconfigs(secret: Secret) -> Kubeconfigs {
    let data = secret.data.unwrap_or_default().into_iter();
    data.map(|(cluster, content)| (ClusterId::new(cluster), content.0))
        .collect()
}

/// Sends the files of a directory until the receiver is closed. A file's cluster is the one that it
/// names.
pub(super) async fn follow_directory(
    directory: PathBuf,
    events: mpsc::Sender<ConfigEvent>,
) -> Result<(), Closed> {
    let mut known = Files::new();
    let mut faulty = Faults::new();
    let mut failure = None;
    let mut is_first = true;

    loop {
        let folder = directory.clone();

        // Reading files can block.
        let read = blocking::run(move || read_directory(&folder)).await;
        let read = read.map_err(std::io::Error::other).flatten();
        let failed = read.as_ref().err().map(ToString::to_string);
        if let Some(error) = failed.as_ref().filter(|_| failed != failure) {
            tracing::error!(error, directory = %directory.display(), "failed to read the kubeconfigs of remote clusters");
        }
        failure = failed;

        // While it fails, the kubeconfigs that were read before stay in use.
        if let Ok((now, faults)) = read {
            for (file, fault) in faults
                .iter()
                .filter(|(file, fault)| faulty.get(*file) != Some(*fault))
            {
                tracing::warn!(file, fault, "ignored invalid kubeconfig");
            }
            faulty = faults;

            for event in changes(&mut known, now, &faulty) {
                events.send(event).await.map_err(|_| Closed)?;
            }
        }

        if std::mem::take(&mut is_first) {
            events.send(ConfigEvent::Synced).await.map_err(|_| Closed)?;
        }

        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = events.closed() => return Err(Closed),
        }
    }
}

/// What has changed since `known`, which becomes `now`. The last valid content of a file stays in
/// use while it is invalid.
///
/// Removed files come last: another file that names the cluster of one takes over from it.
fn changes(known: &mut Files, now: Files, faulty: &Faults) -> Vec<ConfigEvent> {
    let is_gone = |place: &String| !now.contains_key(place) && !faulty.contains_key(place);
    let gone = known.extract_if(.., |place, _| is_gone(place));
    let gone: Vec<ConfigEvent> = gone.map(|(place, _)| ConfigEvent::Gone(place)).collect();

    let mut events = Vec::new();
    for (place, kubeconfigs) in now {
        if known.get(&place) != Some(&kubeconfigs) {
            known.insert(place.clone(), kubeconfigs.clone());
            events.push(ConfigEvent::Put(place, kubeconfigs));
        }
    }

    events.extend(gone);
    events
}

/// The kubeconfigs of all files of a directory that name their cluster, and why other files are
/// ignored.
fn read_directory(directory: &Path) -> std::io::Result<(Files, Faults)> {
    let mut found = Files::new();
    let mut faults = Faults::new();

    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();

        // Another name in its place could be that of another file.
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            let name = format!("{:?}", path.file_name().unwrap_or_default());
            faults.insert(name, "its name is not UTF-8 text".to_owned());
            continue;
        };

        // Kubernetes mounts keep swapped data under names that begin with two dots.
        if name.starts_with("..") || path.is_dir() {
            continue;
        }

        let name = name.to_owned();

        let content = match regular_file::read(&path, MAX_FILE) {
            Ok(content) => content,
            Err(error) => {
                faults.insert(name, error.to_string());
                continue;
            }
        };

        match kubeconfig::cluster_of(&content) {
            Ok(Some(cluster)) => {
                found.insert(
                    name,
                    Kubeconfigs::from([(ClusterId::new(cluster), content)]),
                );
            }
            Ok(None) => _ = faults.insert(name, "it has no cluster".to_owned()),
            Err(error) => _ = faults.insert(name, error.to_string()),
        }
    }

    Ok((found, faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn kubeconfig_files_are_reported_when_added_changed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let config = |cluster: &str| format!("clusters: [{{name: {cluster}}}]");
        std::fs::write(folder.path().join("a"), config("east")).unwrap();
        std::fs::write(folder.path().join("..data"), config("hidden")).unwrap();
        let (sender, mut events) = mpsc::channel(8);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(follow_directory(folder.path().to_owned(), sender));
        let put = |text: String, cluster: &str| {
            let kubeconfigs = Kubeconfigs::from([(ClusterId::new(cluster), text.into_bytes())]);
            ConfigEvent::Put("a".to_owned(), kubeconfigs)
        };
        assert!(events.recv().await == Some(put(config("east"), "east")));

        assert!(events.recv().await == Some(ConfigEvent::Synced));
        std::fs::write(folder.path().join("a"), config("west")).unwrap();
        assert!(events.recv().await == Some(put(config("west"), "west")));

        // An invalid file changes nothing.
        std::fs::write(folder.path().join("a"), "clusters: [").unwrap();
        tokio::time::timeout(POLL_INTERVAL * 2, events.recv())
            .await
            .err()
            .unwrap();
        std::fs::remove_file(folder.path().join("a")).unwrap();
        assert!(events.recv().await == Some(ConfigEvent::Gone("a".to_owned())));

        drop(events);
        assert!(tasks.join_next().await.unwrap().unwrap().is_err());
    }

    /// A kubeconfig of a cluster.
    fn kubeconfigs_of(cluster: &str) -> Kubeconfigs {
        Kubeconfigs::from([(ClusterId::new(cluster), b"text".to_vec())])
    }

    /// Files by name, each with the cluster that it names.
    fn files(named: &[(&str, &str)]) -> Files {
        let file = |(place, cluster): &(&str, &str)| ((*place).to_owned(), kubeconfigs_of(cluster));
        named.iter().map(file).collect()
    }

    fn put(place: &str, cluster: &str) -> ConfigEvent {
        ConfigEvent::Put(place.to_owned(), kubeconfigs_of(cluster))
    }

    #[test]
    fn a_renamed_file_is_sent_before_its_former_name_is_gone() {
        let mut known = files(&[("a", "east"), ("c", "north")]);
        let renamed = files(&[("b", "east"), ("c", "north")]);

        let events = changes(&mut known, renamed.clone(), &Faults::new());

        assert!(events == [put("b", "east"), ConfigEvent::Gone("a".to_owned())]);
        assert!(known == renamed);
        assert!(changes(&mut known, renamed, &Faults::new()).is_empty());
    }

    #[test]
    fn files_whose_names_are_not_text_are_ignored_with_a_reason() {
        use std::os::unix::ffi::OsStringExt as _;

        let folder = tempfile::tempdir().unwrap();
        for (byte, cluster) in [(0xfe, "east"), (0xff, "west")] {
            let name = std::ffi::OsString::from_vec(vec![b'c', byte]);
            let text = format!("clusters: [{{name: {cluster}}}]");
            std::fs::write(folder.path().join(name), text).unwrap();
        }

        let (found, faults) = read_directory(folder.path()).unwrap();

        assert!(found.is_empty());
        let names: Vec<_> = faults.keys().map(String::as_str).collect();
        assert_eq!(names, [r#""c\xFE""#, r#""c\xFF""#]);
    }
}
