mod unusual_files;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;

use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use crate::conformance::{Listener, SourceUnderTest, namespace, suite, virtual_service};
use crate::{Problem, ProblemKind};

suite!(one_file_an_object, FilesApart);
suite!(one_file_for_all, OneFile);

/// A source over a directory, which is deleted with it.
struct Directory {
    folder: TempDir,
    /// The batches that the source sends.
    events: mpsc::Receiver<Batch>,
    /// Makes it read all files again.
    reload: Arc<Notify>,
    /// Ends the source when dropped.
    _running: JoinSet<Result<(), SourceError>>,
}

impl Directory {
    /// Starts a source over `root` within a directory.
    fn start_at(folder: TempDir, root: &Path) -> Self {
        let (sender, events) = mpsc::channel(64);
        let reload = Arc::new(Notify::new());
        let source = FileSource::new(FileSourceConfig {
            root: root.to_owned(),
        });
        let mut running = JoinSet::new();
        running.spawn(source.run(sender, reload.clone()));
        Self {
            folder,
            events,
            reload,
            _running: running,
        }
    }

    /// Starts a source over a directory.
    fn start(folder: TempDir) -> Self {
        let root = folder.path().to_owned();
        Self::start_at(folder, &root)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Each object in its own file.
struct FilesApart(Directory);

/// All objects in one file, which is replaced at every change.
struct OneFile(Directory, Vec<Value>);

fn file_name(object: &Value) -> String {
    format!(
        "{}-{}.yaml",
        object["kind"].as_str().unwrap(),
        object["metadata"]["name"].as_str().unwrap()
    )
}

/// An object as YAML; JSON is YAML too.
fn yaml(object: &Value) -> String {
    serde_json::to_string_pretty(object).unwrap()
}

impl SourceUnderTest for FilesApart {
    async fn start(objects: &[Value]) -> Self {
        let folder = TempDir::new().unwrap();
        for object in objects {
            fs::write(folder.path().join(file_name(object)), yaml(object)).unwrap();
        }
        Self(Directory::start(folder))
    }

    async fn put(&mut self, object: &Value) {
        fs::write(self.0.path(&file_name(object)), yaml(object)).unwrap();
    }

    async fn delete(&mut self, object: &Value) {
        fs::remove_file(self.0.path(&file_name(object))).unwrap();
    }

    fn events(&mut self) -> &mut mpsc::Receiver<Batch> {
        &mut self.0.events
    }
}

impl OneFile {
    fn stream(objects: &[Value]) -> String {
        objects.iter().map(yaml).collect::<Vec<_>>().join("\n---\n")
    }

    /// Replaces the file.
    fn write(&self) {
        fs::write(self.0.path("all.yaml"), Self::stream(&self.1)).unwrap();
    }
}

impl SourceUnderTest for OneFile {
    async fn start(objects: &[Value]) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("all.yaml"), Self::stream(objects)).unwrap();
        Self(Directory::start(folder), objects.to_vec())
    }

    async fn put(&mut self, object: &Value) {
        match self
            .1
            .iter_mut()
            .find(|other| file_name(other) == file_name(object))
        {
            Some(other) => *other = object.clone(),
            None => self.1.push(object.clone()),
        }
        self.write();
    }

    async fn delete(&mut self, object: &Value) {
        self.1.retain(|other| file_name(other) != file_name(object));
        self.write();
    }

    fn events(&mut self) -> &mut mpsc::Receiver<Batch> {
        &mut self.0.events
    }
}

/// Listens to a source over a directory filled by `fill`, once it is synced.
async fn listen(fill: impl FnOnce(&Path)) -> Listener<FilesApart> {
    let folder = TempDir::new().unwrap();
    fill(folder.path());
    let mut listener = Listener::over(FilesApart(Directory::start(folder)));
    listener.sync().await;
    listener
}

/// A namespace as YAML.
fn text(name: &str, label: &str) -> String {
    yaml(&namespace(name, label))
}

#[tokio::test]
async fn a_mounted_config_map_is_replaced_atomically() {
    let version = |folder: &Path, version: &str, label: &str| {
        fs::create_dir(folder.join(version)).unwrap();
        for name in ["a", "b"] {
            fs::write(
                folder.join(version).join(format!("{name}.yaml")),
                text(name, label),
            )
            .unwrap();
        }
        symlink(version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };

    let mut listener = listen(|folder| {
        version(folder, "..2026_1", "1");
        for name in ["a.yaml", "b.yaml"] {
            symlink(Path::new("..data").join(name), folder.join(name)).unwrap();
        }
    })
    .await;
    assert_eq!(listener.objects.len(), 2);
    assert!(listener.problems.is_empty(), "{:?}", listener.problems);
    let folder = listener.source.0.folder.path().to_owned();
    version(&folder, "..2026_2", "2");
    fs::remove_dir_all(folder.join("..2026_1")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");
    assert_eq!(listener.next_change().await, "~Namespace b");

    listener.expect_quiet("m").await;
}

#[tokio::test]
async fn saving_by_an_editor_keeps_all_objects() {
    let mut listener =
        listen(|folder| fs::write(folder.join("a.yaml"), text("a", "0")).unwrap()).await;
    let file = listener.source.0.path("a.yaml");
    let folder = listener.source.0.folder.path().to_owned();

    // Written to a temporary file and renamed.
    fs::write(folder.join("a.yaml.tmp"), text("a", "1")).unwrap();
    fs::rename(folder.join("a.yaml.tmp"), &file).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");

    // Moved away and rewritten, the old file deleted; with a dangling lock link.
    symlink("nowhere", folder.join(".#a.yaml")).unwrap();
    fs::rename(&file, folder.join("a.yaml~")).unwrap();
    fs::write(&file, text("a", "2")).unwrap();
    fs::remove_file(folder.join("a.yaml~")).unwrap();
    fs::remove_file(folder.join(".#a.yaml")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");

    // Deleted and rewritten.
    fs::remove_file(&file).unwrap();
    fs::write(&file, text("a", "3")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");

    // Emptied, closed, and rewritten.
    fs::write(&file, "").unwrap();
    fs::write(&file, text("a", "4")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");
    listener.expect_quiet("m").await;
}

#[tokio::test]
async fn a_file_is_read_when_its_writer_is_done() {
    let mut listener =
        listen(|folder| fs::write(folder.join("a.yaml"), text("a", "0")).unwrap()).await;
    let whole = [text("a", "1"), text("b", "1")].join("\n---\n");
    let (start, end) = whole.split_at(whole.len() / 2 + 20);
    let mut file = fs::File::create(listener.source.0.path("a.yaml")).unwrap();
    file.write_all(start.as_bytes()).unwrap();
    listener.expect_quiet("m").await;
    file.write_all(end.as_bytes()).unwrap();
    drop(file);
    assert_eq!(listener.next_change().await, "~Namespace a");
    assert_eq!(listener.next_change().await, "+Namespace b");
}

#[tokio::test]
async fn directories_may_be_created_moved_and_deleted() {
    let mut listener = listen(|_| {}).await;
    let folder = listener.source.0.folder.path().to_owned();
    fs::create_dir_all(folder.join("d/e")).unwrap();
    fs::write(folder.join("d/e/a.yaml"), text("a", "1")).unwrap();
    assert_eq!(listener.next_change().await, "+Namespace a");
    fs::write(folder.join("d/e/a.yaml"), text("a", "2")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");
    fs::rename(folder.join("d"), folder.join("f")).unwrap();
    fs::write(folder.join("f/e/b.yaml"), text("b", "1")).unwrap();
    assert_eq!(listener.next_change().await, "+Namespace b");
    fs::write(folder.join("f/e/a.yaml"), text("a", "3")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");
    fs::remove_dir_all(folder.join("f")).unwrap();
    let mut gone = [listener.next_change().await, listener.next_change().await];
    gone.sort();
    assert_eq!(gone, ["-Namespace a", "-Namespace b"]);
}

#[test]
fn only_paths_that_are_or_were_directories_cause_a_scan() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("old")).unwrap();
    fs::write(path("a.yaml"), "").unwrap();
    let (events, _receiver) = mpsc::channel(1);
    let mut worker = Worker::new(folder.path().to_owned(), Arc::default(), events);
    worker.scan_tree(&mut Vec::new(), false);

    fs::remove_dir(path("old")).unwrap();
    fs::create_dir(path("new")).unwrap();
    fs::write(path("a.yaml.tmp"), "").unwrap();
    symlink(path("new"), path("link")).unwrap();
    let is_scanned = |name: &str| worker.has_folder(&BTreeSet::from([path(name)]));
    for name in ["old", "new", "link"] {
        assert!(is_scanned(name), "{name}");
    }
    for name in ["a.yaml.tmp", "sedXy3", "notes.txt"] {
        assert!(!is_scanned(name), "{name}");
    }
}

#[tokio::test]
async fn an_object_may_move_from_file_to_file() {
    let mut listener =
        listen(|folder| fs::write(folder.join("a.yaml"), text("x", "1")).unwrap()).await;
    fs::rename(
        listener.source.0.path("a.yaml"),
        listener.source.0.path("b.yaml"),
    )
    .unwrap();
    listener.expect_quiet("m1").await;
    fs::write(listener.source.0.path("c.yml"), text("x", "1")).unwrap();
    fs::remove_file(listener.source.0.path("b.yaml")).unwrap();
    listener.expect_quiet("m2").await;
    fs::remove_file(listener.source.0.path("c.yml")).unwrap();
    assert_eq!(listener.next_change().await, "-Namespace x");
}

#[tokio::test]
async fn a_second_definition_is_a_duplicate_until_the_first_is_removed() {
    let mut listener =
        listen(|folder| fs::write(folder.join("b.yaml"), text("x", "b")).unwrap()).await;
    fs::write(listener.source.0.path("c.yaml"), text("x", "c")).unwrap();
    let duplicate = |problems: &[&Problem]| {
        matches!(problems, [Problem { fault: ProblemKind::Duplicate { holder }, place, .. }]
            if holder.file.ends_with("b.yaml") && holder.line == 1 && place.file.ends_with("c.yaml"))
    };
    listener.until_problems(duplicate).await;
    fs::remove_file(listener.source.0.path("b.yaml")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace x");
    listener
        .until_problems(|problems| problems.is_empty())
        .await;
}

#[tokio::test]
async fn symbolic_links_are_followed() {
    let elsewhere = TempDir::new().unwrap();
    fs::write(elsewhere.path().join("target.yaml"), text("a", "1")).unwrap();
    fs::create_dir(elsewhere.path().join("sub")).unwrap();
    fs::write(elsewhere.path().join("sub/b.yaml"), text("b", "1")).unwrap();
    let mut listener = listen(|folder| {
        symlink(elsewhere.path().join("target.yaml"), folder.join("a.yaml")).unwrap();
        symlink(elsewhere.path().join("sub"), folder.join("sub")).unwrap();
        symlink(folder, folder.join("circle")).unwrap();
    })
    .await;
    assert_eq!(listener.objects.len(), 2);
    assert!(listener.problems.is_empty(), "{:?}", listener.problems);
    fs::write(elsewhere.path().join("target.yaml"), text("a", "2")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");
    fs::write(elsewhere.path().join("sub/b.yaml"), text("b", "2")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace b");
}

#[tokio::test]
async fn sync_waits_for_the_directory_and_objects_survive_its_removal() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("config");
    let mut listener = Listener::over(FilesApart(Directory::start_at(folder, &root)));
    listener
        .until_problems(|problems| {
            matches!(
                problems,
                [Problem {
                    fault: ProblemKind::Unreadable(_),
                    ..
                }]
            )
        })
        .await;

    fs::create_dir(&root).unwrap();
    fs::write(root.join("a.yaml"), text("a", "1")).unwrap();
    let changes = [listener.next_change().await, listener.next_change().await];
    assert!(
        changes == ["+Namespace a", "synced"] || changes == ["synced", "+Namespace a"],
        "{changes:?}"
    );
    fs::remove_dir_all(&root).unwrap();

    listener
        .until_problems(|problems| {
            problems
                .iter()
                .any(|it| matches!(it.fault, ProblemKind::Unreadable(_)))
        })
        .await;

    fs::create_dir(&root).unwrap();
    fs::write(root.join("b.yaml"), text("b", "1")).unwrap();
    let mut changes = [listener.next_change().await, listener.next_change().await];
    changes.sort();
    assert_eq!(
        changes,
        ["+Namespace b", "-Namespace a"],
        "the directory exists again, without a"
    );
}

#[tokio::test]
async fn messages_about_one_object_are_limited_and_then_counted() {
    let mut doubtful = virtual_service("a", "one");
    let route = doubtful["spec"]["http"][0].clone();
    doubtful["spec"]["http"] = Value::Array(vec![route; 5_000]);
    let listener =
        listen(|folder| fs::write(folder.join("a.yaml"), yaml(&doubtful)).unwrap()).await;
    let problems: Vec<String> = listener
        .problems
        .values()
        .flatten()
        .map(ToString::to_string)
        .collect();

    assert_eq!(problems.len(), 11, "{problems:?}");
    assert!(
        problems[10].ends_with("and 4989 more warnings"),
        "{}",
        problems[10]
    );
    assert_eq!(listener.objects.len(), 1);
}

#[tokio::test]
async fn problems_have_their_line() {
    let mut listener = listen(|_| {}).await;
    let broken = virtual_service("v", "h")
        .to_string()
        .replace("[\"h\"]", "7");
    let stream = format!(
        "# words\n{}\n---\n# more words\n{broken}\n",
        virtual_service("w", "h")
    );
    fs::write(listener.source.0.path("a.yaml"), stream).unwrap();

    listener
        .until_problems(|problems| problems.len() == 1)
        .await;
    let problem = listener
        .problems
        .values()
        .flatten()
        .next()
        .unwrap()
        .to_string();

    assert!(
        problem.contains("a.yaml:5: VirtualService shop/v: spec.hosts: "),
        "{problem}"
    );
}

#[tokio::test]
async fn a_reload_without_changes_reports_nothing() {
    let mut listener =
        listen(|folder| fs::write(folder.join("a.yaml"), text("a", "1")).unwrap()).await;
    listener.source.0.reload.notify_one();
    listener.expect_quiet("m1").await;
    fs::remove_file(listener.source.0.path("a.yaml")).unwrap();
    listener.source.0.reload.notify_one();
    assert_eq!(listener.next_change().await, "-Namespace a");
}

#[tokio::test]
async fn json_files_are_distinguished_from_others() {
    let listener = listen(|folder| {
        fs::write(folder.join("a.json"), text("a", "1") + &text("b", "1")).unwrap();
        fs::write(folder.join("c.txt"), text("c", "1")).unwrap();
        fs::write(folder.join(".d.yaml"), text("d", "1")).unwrap();
    })
    .await;
    let names: Vec<_> = listener
        .objects
        .keys()
        .map(|reference| reference.name.to_string())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn an_invalid_version_leaves_the_last_good_one() {
    let mut listener = listen(|_| {}).await;
    let good = virtual_service("a", "one");
    listener.source.put(&good).await;
    assert_eq!(listener.next_change().await, "+VirtualService shop/a");
    let mut invalid = virtual_service("a", "two");
    invalid["spec"]["http"][0]["timeout"] = "1ns".into();
    invalid["spec"]["http"][0]["route"][0]["weight"] = (-1).into();
    listener.source.put(&invalid).await;

    let is = |problem: &Problem, field: &str| matches!(&problem.fault, ProblemKind::Rejected(error) if error.path == field);
    listener
        .until_problems(|problems| match problems {
            [first, second] => {
                is(first, "spec.http[0].timeout") && is(second, "spec.http[0].route[0].weight")
                    || is(second, "spec.http[0].timeout")
                        && is(first, "spec.http[0].route[0].weight")
            }
            _ => false,
        })
        .await;

    assert_eq!(
        listener.hosts(),
        BTreeMap::from([("a".to_owned(), "one".to_owned())])
    );
    listener.source.put(&virtual_service("a", "two")).await;
    assert_eq!(listener.next_change().await, "~VirtualService shop/a");
    listener
        .until_problems(|problems| problems.is_empty())
        .await;
}

#[tokio::test]
async fn objects_with_warnings_are_accepted_and_reported() {
    let mut doubtful = virtual_service("a", "one");
    let route = doubtful["spec"]["http"][0].clone();
    doubtful["spec"]["http"] = Value::Array(vec![route.clone(), route]);
    let listener =
        listen(|folder| fs::write(folder.join("a.yaml"), yaml(&doubtful)).unwrap()).await;
    let problems: Vec<_> = listener.problems.values().flatten().collect();
    assert!(
        matches!(
            problems.as_slice(),
            [Problem {
                fault: ProblemKind::Warning(_),
                ..
            }]
        ),
        "{problems:?}"
    );
    assert_eq!(listener.objects.len(), 1);
}
