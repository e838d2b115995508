use super::*;
use navarch_api::decode::{Format, decode_documents};

/// A namespace with a label, as YAML.
fn namespace(name: &str, label: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{l: '{label}'}}}}\n---\n"
    )
}

/// An index with its events, one per line.
#[derive(Default)]
struct Events {
    index: Index,
}

impl Events {
    /// Puts a file and returns the events.
    fn put(&mut self, file: &str, text: &str) -> Vec<String> {
        let file = Arc::from(file);
        let before = self.index.contents(&file);
        let contents = Contents::read(&file, decode_documents(text, Format::Yaml), &before);
        self.index.put(&file, contents, None);
        self.take_changes()
    }

    /// Removes a file and returns the events.
    fn remove(&mut self, file: &str) -> Vec<String> {
        self.index.remove(&Arc::from(file));
        self.take_changes()
    }

    /// Returns the events.
    fn take_changes(&mut self) -> Vec<String> {
        let brief = |event| match event {
            SourceEvent::Added(object) => {
                format!("+{} {}", object.meta().key.name, object.meta().labels["l"])
            }
            SourceEvent::Updated(object) => {
                format!("~{} {}", object.meta().key.name, object.meta().labels["l"])
            }
            SourceEvent::Deleted(reference) => format!("-{}", reference.name.name),
            SourceEvent::Problems { place, problems } if problems.is_empty() => {
                format!("{place} well")
            }
            SourceEvent::Problems { problems, .. } => problems
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
            SourceEvent::MeshConfig(_)
            | SourceEvent::MeshNetworks(_)
            | SourceEvent::Keys(..)
            | SourceEvent::FullSync => "?".to_owned(),
        };

        self.index.take_changes().into_iter().map(brief).collect()
    }
}

#[test]
fn objects_are_added_changed_and_removed_with_their_file() {
    let mut reported = Events::default();
    assert_eq!(
        reported.put("a", &(namespace("x", "1") + &namespace("y", "1"))),
        ["+x 1", "+y 1"]
    );
    assert_eq!(
        reported.put("a", &(namespace("x", "1") + &namespace("y", "1"))),
        [""; 0]
    );
    assert_eq!(
        reported.put("a", &(namespace("y", "2") + &namespace("x", "1"))),
        ["~y 2"]
    );
    assert_eq!(reported.put("a", &namespace("y", "2")), ["-x"]);
    assert_eq!(reported.remove("a"), ["-y"]);
}

#[test]
fn the_first_of_two_definitions_applies_until_it_is_deleted() {
    let mut reported = Events::default();
    assert_eq!(reported.put("b", &namespace("x", "b")), ["+x b"]);
    assert_eq!(
        reported.put("c", &namespace("x", "c")),
        ["c:1: Namespace x: is already defined in b:1, which takes precedence"]
    );
    assert_eq!(
        reported.put("a", &namespace("x", "a")),
        [
            "~x a",
            "b:1: Namespace x: is already defined in a:1, which takes precedence",
            "c:1: Namespace x: is already defined in a:1, which takes precedence"
        ]
    );

    assert_eq!(reported.remove("b"), ["b well"]);
    assert_eq!(reported.remove("a"), ["~x c", "c well"]);
    let twice = namespace("x", "1") + &namespace("x", "2");
    assert_eq!(
        reported.put("c", &twice),
        [
            "~x 1",
            "c:5: Namespace x: is already defined in c:1, which takes precedence"
        ]
    );
}

#[test]
fn an_object_that_moves_to_another_file_is_not_touched() {
    let mut reported = Events::default();
    reported.put("a", &namespace("x", "1"));
    reported.index.set_missing("a", true);
    assert_eq!(reported.put("b", &namespace("x", "1")), [""; 0]);
    assert_eq!(reported.remove("a"), [""; 0]);
    assert_eq!(reported.remove("b"), ["-x"]);
}

#[test]
fn the_last_good_version_stays_while_an_object_is_broken() {
    let mut reported = Events::default();
    reported.put("a", &(namespace("x", "1") + &namespace("y", "1")));
    let broken = namespace("x", "1").replace("labels: {l: '1'}", "labels: []");
    let events = reported.put("a", &(broken.clone() + &namespace("y", "2")));
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[0], "~y 2");
    assert!(
        events[1].starts_with("a:3: Namespace x: metadata.labels: "),
        "{events:?}"
    );
    assert_eq!(
        reported.put("a", &(namespace("x", "1") + &namespace("y", "2"))),
        ["a well"]
    );
    reported.put("a", &(broken + &namespace("y", "2")));
    assert_eq!(reported.put("a", &namespace("y", "2")), ["-x", "a well"]);
}

#[test]
fn an_unnamed_broken_document_stands_for_the_object_missing_from_the_file() {
    let mut reported = Events::default();
    reported.put("a", &(namespace("x", "1") + &namespace("y", "1")));
    let events = reported.put("a", &("kind: [\n---\n".to_owned() + &namespace("y", "1")));
    assert_eq!(events.len(), 1, "{events:?}");
    let events = reported.put("a", &("kind: [\n---\n".to_owned() + &namespace("x", "1")));
    assert_eq!(
        events[0], "-y",
        "the invalid document was x, which is in another file now: {events:?}"
    );
}

#[test]
fn a_file_that_cannot_be_read_keeps_its_objects() {
    let mut reported = Events::default();
    reported.put("a", &namespace("x", "1"));
    let file = Arc::from("a");
    let contents = Contents::unreadable(&file, "no".to_owned(), &reported.index.contents("a"));
    reported.index.put(&file, contents, None);
    assert_eq!(reported.take_changes(), ["a: cannot be read: no"]);
    assert_eq!(reported.put("a", &namespace("x", "1")), ["a well"]);
}

#[test]
fn files_read_in_any_order_give_the_same_objects() {
    let files = [("a", "1"), ("b", "2"), ("c", "3")];

    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut reported = Events::default();
        for at in order {
            reported.put(files[at].0, &namespace("x", files[at].1));
        }
        let held: Vec<_> = reported
            .index
            .published
            .values()
            .map(|object| object.meta().labels["l"].to_string())
            .collect();
        assert_eq!(held, ["1"]);
        assert_eq!(
            reported
                .index
                .reported_problems
                .keys()
                .map(|place| &**place)
                .collect::<Vec<_>>(),
            ["b", "c"]
        );
    }
}
