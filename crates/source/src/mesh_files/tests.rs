use std::fs;

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Duration, timeout};

use super::*;

/// A source over two files in a directory.
struct Files {
    folder: TempDir,
    /// The batches that the source sends.
    events: mpsc::Receiver<Batch>,
    /// Ends the source when dropped.
    _running: JoinSet<Result<(), SourceError>>,
}

impl Files {
    /// Starts a source over files with these texts, either of which may be missing.
    fn start(mesh: Option<&str>, networks: Option<&str>) -> Self {
        let folder = TempDir::new().unwrap();

        for (name, text) in [("mesh", mesh), ("meshNetworks", networks)] {
            if let Some(text) = text {
                fs::write(folder.path().join(name), text).unwrap();
            }
        }

        Self::start_in(folder)
    }

    /// Starts a source over the files of a folder.
    fn start_in(folder: TempDir) -> Self {
        let source = MeshFileSource::new(MeshFileSourceConfig {
            mesh: Some(folder.path().join("mesh")),
            networks: Some(folder.path().join("meshNetworks")),
            base: MeshConfig::istio_defaults(),
        });
        let (sender, events) = mpsc::channel(16);
        let mut running = JoinSet::new();
        running.spawn(source.run(sender, Arc::new(Notify::new())));

        Self {
            folder,
            events,
            _running: running,
        }
    }

    async fn next(&mut self) -> Batch {
        timeout(Duration::from_secs(20), self.events.recv())
            .await
            .expect("no batch arrived")
            .expect("the source ended")
    }

    /// The next batch in brief.
    async fn brief(&mut self) -> Vec<String> {
        let batch = self.next().await;
        let brief = |event| match event {
            SourceEvent::MeshConfig(config) => format!("mesh {}", config.root_namespace),
            SourceEvent::MeshNetworks(networks) => format!("networks {}", networks.networks.len()),
            SourceEvent::Keys(source, _) => format!("keys of {source}"),
            SourceEvent::Problems { problems, .. } if problems.is_empty() => "well".to_owned(),
            SourceEvent::Problems { problems, .. } => {
                let text: Vec<_> = problems.iter().map(ToString::to_string).collect();
                text.join("; ")
                    .replace(&format!("{}/", self.folder.path().display()), "")
            }
            SourceEvent::FullSync => "synced".to_owned(),
            SourceEvent::Added(_) | SourceEvent::Updated(_) | SourceEvent::Deleted(_) => {
                "?".to_owned()
            }
        };
        batch.into_iter().map(brief).collect()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }
}

#[tokio::test]
async fn files_are_reported_at_start_and_on_change() {
    let mut files = Files::start(Some("rootNamespace: a\n"), Some("networks: {n: {}}"));
    let start = [
        "mesh istio-system",
        "networks 0",
        "mesh a",
        "networks 1",
        "synced",
    ];
    assert_eq!(files.brief().await, start);
    files.write("mesh", "rootNamespace: b\n");
    assert_eq!(files.brief().await, ["mesh b"]);
    files.write("meshNetworks", "networks: {n: {}, m: {}}");
    assert_eq!(files.brief().await, ["networks 2"]);
}

#[tokio::test]
async fn a_missing_file_is_reported_and_defaults_are_used() {
    let mut files = Files::start(None, Some(""));
    let batch = files.brief().await;
    assert_eq!(batch[..2], ["mesh istio-system", "networks 0"]);
    assert!(batch[2].starts_with("mesh: cannot be read: "), "{batch:?}");
    assert_eq!(batch[3..], ["networks 0", "synced"]);
    files.write("mesh", "rootNamespace: b\n");
    assert_eq!(files.brief().await, ["mesh b", "well"]);
}

#[tokio::test]
async fn sync_waits_for_a_file_that_is_invalid_at_start() {
    let mut files = Files::start(
        Some("trustDomain: own\nenableTracing: maybe\n"),
        Some("networks: {n: {}}"),
    );
    let events = files.brief().await;
    assert!(
        events.len() == 1 && events[0].starts_with("mesh:2: enableTracing: "),
        "{events:?}"
    );

    files.write("mesh", "trustDomain: own\nrootNamespace: b\n");
    let start = [
        "mesh istio-system",
        "networks 0",
        "networks 1",
        "mesh b",
        "well",
        "synced",
    ];

    assert_eq!(files.brief().await, start);
    files.write("mesh", "enableTracing: maybe\n");
    assert_eq!(files.brief().await.len(), 1, "the last good one stays");
}

#[tokio::test]
async fn a_file_that_is_unreadable_at_start_is_waited_for() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("mesh"), b"trustDomain: \xff\n").unwrap();
    fs::write(folder.path().join("meshNetworks"), "networks: {}").unwrap();
    let mut files = Files::start_in(folder);
    assert_eq!(
        files.brief().await,
        ["mesh: cannot be read: is not UTF-8 text"]
    );

    files.write("mesh", "rootNamespace: b\n");
    let start = [
        "mesh istio-system",
        "networks 0",
        "networks 0",
        "mesh b",
        "well",
        "synced",
    ];
    assert_eq!(files.brief().await, start);
}

#[tokio::test]
async fn a_broken_file_leaves_the_last_good_one() {
    let mut files = Files::start(Some("rootNamespace: a\n"), None);
    files.brief().await;
    files.write("mesh", "rootNamespace: b\nenableTracing: maybe\n");
    let events = files.brief().await;
    assert!(
        events.len() == 1 && events[0].starts_with("mesh:2: enableTracing: "),
        "{events:?}"
    );

    files.write(
        "mesh",
        "rootNamespace: b\ndefaultConfig:\n  discoveryAddress: nowhere\n",
    );
    let events = files.brief().await;
    assert!(
        events.len() == 1 && events[0].starts_with("mesh:3: defaultConfig.discoveryAddress: "),
        "{events:?}"
    );

    files.write("mesh", "rootNamespace: c\nno_such: 1\n");
    assert_eq!(
        files.brief().await,
        ["mesh c", "mesh:2: unknown field \"no_such\""]
    );
    fs::remove_file(files.folder.path().join("mesh")).unwrap();
    let events = files.brief().await;
    assert!(
        events.len() == 1 && events[0].starts_with("mesh: cannot be read: "),
        "{events:?}"
    );

    files.write("mesh", "rootNamespace: c\n");
    assert_eq!(files.brief().await, ["mesh c", "well"]);
}

#[tokio::test]
async fn a_briefly_empty_file_causes_no_event() {
    let mut files = Files::start(Some("rootNamespace: a\n"), Some(""));
    files.brief().await;
    files.write("mesh", "");
    files.write("mesh", "rootNamespace: b\n");
    assert_eq!(files.brief().await, ["mesh b"]);
    files.write("mesh", "");
    assert_eq!(files.brief().await, ["mesh istio-system"]);
}

#[tokio::test]
async fn a_mounted_config_map_is_swapped() {
    use std::os::unix::fs::symlink;

    let mut files = Files::start(None, None);
    files.brief().await;
    let folder = files.folder.path().to_owned();

    for (version, namespace) in [("..1", "a"), ("..2", "b")] {
        fs::create_dir(folder.join(version)).unwrap();
        fs::write(
            folder.join(version).join("mesh"),
            format!("rootNamespace: {namespace}\n"),
        )
        .unwrap();
        symlink(version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        if version == "..1" {
            symlink("..data/mesh", folder.join("mesh")).unwrap();
        }
        assert_eq!(files.brief().await[0], format!("mesh {namespace}"));
    }
}
