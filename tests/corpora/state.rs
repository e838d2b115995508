//! The state that a process writes and others read: later starts, replicas, and other releases.
//!
//! `tests/corpora/state` has a file for each kind of state and each format, `KIND.FORMAT.json`; the
//! layouts of Istio are called `istio`. Each is read, and is what this release writes for the same
//! value, perhaps with additional fields. Those whose types are private have their tests beside
//! these: `ca-replica-report` in `navarch-security`, `distribution-report` and `leader-…` in
//! `navarch-status`.
//!
//! A file of a released format stays as it is. For another format, name its file here, and
//! `REWRITE=1 cargo test --test corpora state` writes it, if it can be made without keys.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ConfigMap;
use navarch::api::any_object::AnyObject;
use navarch::api::decode::{Outcome, decode_value};
use navarch::api::learned_scope::LearnedWorkload;
use navarch::api::names::{Hostname, Namespace, ServiceAccount};
use navarch::api::object::{Kind, NamespacedName, ObjectRef};
use navarch::api::uid::Uid;
use navarch::push::quarantine::instance::{Instance, Mark};
use navarch::push::quarantine::jury::StoredJury;
use navarch::push::quarantine::turnout::Turnout;
use navarch::push::quarantine::votes::{Answer, VoteCounter, Voter, Votes};
use navarch::status::{
    KeptQuarantine, KeptRollout, KeptScope, QuarantineOutcome, ReplicaVotes, SharedState,
};
use navarch_migration::{Change, DoneStep, Edit, FORMAT, ObjectName, RecordedStep, State};
use navarch_record::Segment;
use navarch_record::format::{Input, Line};
use serde_json::{Value, json};

/// All files: none is ever removed.
const FILES: [&str; 14] = [
    "ca-replica-report.1.json",
    "ca-rotation-secret.1.json",
    "ca-secret.istio.json",
    "ca-state-dir.1.json",
    "distribution-report.1.json",
    "leader-config-map.istio.json",
    "leader-lease.istio.json",
    "learned-scope.1.json",
    "migration-config-map.1.json",
    "quarantine-config-map.1.json",
    "quarantine-decision.1.json",
    "recording.1.jsonl",
    "recording.2.jsonl",
    "rollout-config-map.1.json",
];

/// The kinds of lines and inputs that a recording has, by its format, from 1 on.
const RECORDED: [usize; 2] = [31, 33];

/// The `metadata.uid` of the object in the files.
const UID: &str = "0b5e1c4e-6f5b-4a57-9d2a-3f1f1a5a7c11";

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpora/state")
        .join(name)
}

/// The content of a file.
pub(crate) fn committed(name: &str) -> Value {
    let text = fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// Checks that a value is written as in a file. With `REWRITE=1`, writes a missing file.
pub(crate) fn is_written_as(name: &str, written: &Value) {
    if std::env::var_os("REWRITE").is_some() && !path(name).exists() {
        fs::write(path(name), format!("{written:#}\n")).unwrap();
    }

    let mut lost = Vec::new();
    compare(&committed(name), written, name, &mut lost);
    assert_eq!(
        lost,
        Vec::<String>::new(),
        "these are removed or changed: the format needs another number, and a file of its own"
    );
}

/// Collects what of a committed value is not in the written one. Texts that contain JSON are
/// compared as JSON.
fn compare(committed: &Value, written: &Value, place: &str, lost: &mut Vec<String>) {
    match (committed, written) {
        (Value::Object(committed), Value::Object(written)) => {
            for (name, value) in committed {
                let found = written.get(name).unwrap_or(&Value::Null);
                compare(value, found, &format!("{place}.{name}"), lost);
            }
        }
        (Value::Array(committed), Value::Array(written)) if committed.len() == written.len() => {
            for (index, (value, found)) in committed.iter().zip(written).enumerate() {
                compare(value, found, &format!("{place}[{index}]"), lost);
            }
        }
        (Value::String(text), Value::String(other)) if text != other => {
            match (json_object(text), json_object(other)) {
                (Some(value), Some(found)) => compare(&value, &found, place, lost),
                (_, _) => lost.push(format!("{place}: {other:?} for {text:?}")),
            }
        }
        (value, found) if value == found => {}
        (value, found) => lost.push(format!("{place}: {found} for {value}")),
    }
}

/// The JSON object in a text, if it contains one.
fn json_object(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    value.is_object().then_some(value)
}

/// A version of the object in the files.
fn reviews(host: &str, generation: i64, version: &str, annotations: &Value) -> AnyObject {
    let value = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {
            "name": "reviews", "namespace": "shop", "annotations": annotations,
            "creationTimestamp": "2026-11-20T08:00:00Z", "resourceVersion": version,
            "generation": generation, "uid": UID,
        },
        "spec": { "hosts": ["reviews"], "tcp": [{ "route": [{ "destination": { "host": host } }] }] },
    });
    match decode_value(&value).1 {
        Outcome::Read { object, .. } => object,
        other @ (Outcome::Ignored | Outcome::Rejected(_)) => panic!("{other:?}"),
    }
}

#[test]
fn every_kind_of_state_has_a_file_and_none_is_removed() {
    let found: BTreeSet<String> = fs::read_dir(path(""))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();

    assert_eq!(found, BTreeSet::from(FILES.map(str::to_owned)));
}

#[test]
fn a_changed_or_a_removed_field_is_found_and_an_added_one_is_allowed() {
    let committed = json!({ "a": [{ "b": 1 }], "text": r#"{"c":1}"# });
    let lost = |written: Value| {
        let mut lost = Vec::new();
        compare(&committed, &written, "state", &mut lost);
        lost
    };

    let none = Vec::<String>::new();
    assert_eq!(
        lost(json!({ "a": [{ "b": 1, "new": 2 }], "text": r#"{ "new": 2, "c": 1 }"#, "new": 2 })),
        none
    );
    assert_eq!(
        lost(json!({ "a": [{ "b": "1" }], "text": r#"{"d":1}"# })),
        ["state.a[0].b: \"1\" for 1", "state.text.c: null for 1"]
    );
    assert_eq!(lost(json!({ "a": [], "text": "c" })).len(), 2);
}

#[test]
fn the_state_of_a_rollout_is_read_and_written() {
    let staged = json!({ "navarch.io/rollout": "5%,25%" });
    let kept = KeptRollout {
        new: reviews("reviews-v2", 4, "1041", &staged),
        before: Some(reviews("reviews-v1", 3, "1007", &staged)),
        state: SharedState::Stage {
            at: 1,
            paused: true,
        },
        waits: [(
            "istiod-1".to_owned(),
            "2026-11-23T10:15:00Z".parse().unwrap(),
        )]
        .into(),
        version: None,
        bytes: 0,
    };
    let name = "rollout-config-map.1.json";

    let written = serde_json::to_value(kept.to_config_map().unwrap()).unwrap();
    is_written_as(name, &written);

    let map: ConfigMap = serde_json::from_value(committed(name)).unwrap();
    let read = KeptRollout::from_config_map(&map).unwrap();
    assert_eq!((read.new, read.before), (kept.new, kept.before));
    assert_eq!((read.state, read.waits), (kept.state, kept.waits));
}

#[test]
fn the_record_of_a_migration_is_read_and_written() {
    let name = "migration-config-map.1.json";
    let edit = |api_version: &str, kind: &str, namespace: &str, name: &str, change| Edit {
        object: ObjectName {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        change,
    };
    let labels = |value: Value| Change::Patch {
        patch: json!({ "metadata": { "labels": { "istio.io/dataplane-mode": value } } }),
    };
    let waypoint = Change::Create {
        content: json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": { "name": "waypoint", "namespace": "shop" },
        }),
    };
    let of_waypoint = |change| {
        let version = "gateway.networking.k8s.io/v1";
        edit(version, "Gateway", "shop", "waypoint", change)
    };
    let of_namespace = |value| edit("v1", "Namespace", "", "shop", labels(value));

    let done = |title: &str, edit: &Edit, undo: Edit| DoneStep {
        title: title.to_owned(),
        time: "2026-11-29T10:15:00Z".to_owned(),
        edits: vec![edit.clone()],
        undo: vec![undo],
    };
    let created = of_waypoint(waypoint);
    let labelled = of_namespace(json!("ambient"));
    let step = |title: &str, edit: &Edit| RecordedStep {
        title: title.to_owned(),
        edits: vec![edit.clone()],
    };
    let state = State {
        format: FORMAT,
        steps: vec![step("create", &created), step("label", &labelled)],
        done: vec![done("create", &created, of_waypoint(Change::Delete))],
        begun: Some(done("label", &labelled, of_namespace(Value::Null))),
    };

    is_written_as(name, &serde_json::to_value(&state).unwrap());
    assert_eq!(
        State::parse(&committed(name).to_string(), "shop").unwrap(),
        state
    );
}

#[test]
fn the_state_of_a_quarantine_is_read_and_written() {
    let mut counter = VoteCounter::default();
    for (pod, answer) in [
        ("web-1", Answer::Accepted),
        ("web-2", Answer::Rejected),
        ("web-3", Answer::Pending),
    ] {
        let voter = Voter {
            account: NamespacedName::new("shop", "web"),
            workload: NamespacedName::new("shop", pod),
            mark: Mark::Unknown,
        };
        counter.add(voter, answer);
    }

    counter.add_stranger();
    let votes = counter.votes();
    let object = ObjectRef {
        kind: Kind::VirtualService,
        name: NamespacedName::new("shop", "reviews"),
    };
    let report = ReplicaVotes {
        at: "2026-11-23T10:15:00Z".parse().unwrap(),
        votes: votes.to_json(&object.name.namespace),
        turnout: None,
    };
    let kept = KeptQuarantine {
        object,
        generation: 4,
        uid: Uid::new(UID),
        created: None,
        votes: [("istiod-1".to_owned(), report)].into(),
        outcome: Some(QuarantineOutcome::Quarantined {
            message: "rejected by 2 of 2; one of them: no such cluster".to_owned(),
            others: Some(vec![NamespacedName::new("edge", "gateway")]),
            rejecting: None,
            jury: None,
            before: Some(reviews("reviews-v1", 3, "1007", &json!({}))),
        }),
        rejudged: 0,
        version: None,
    };
    let name = "quarantine-config-map.1.json";

    let written = serde_json::to_value(kept.to_config_map().unwrap()).unwrap();
    is_written_as(name, &written);

    let map: ConfigMap = serde_json::from_value(committed(name)).unwrap();
    let read = KeptQuarantine::from_config_map(&map).unwrap();
    assert_eq!(
        (&read.object, read.generation, &read.uid),
        (&kept.object, kept.generation, &kept.uid)
    );
    assert_eq!(read.outcome, kept.outcome);

    // Its votes list no workloads, which later releases add.
    let stored = &read.votes["istiod-1"];
    assert_eq!(
        (stored.at, &stored.turnout),
        (kept.votes["istiod-1"].at, &None)
    );
    let reported = Votes::from_json(&stored.votes).unwrap();
    assert_eq!(reported.votes.accounts(), votes.accounts());
    assert_eq!(reported.votes.strangers(), votes.strangers());
    assert!(!reported.is_partial && reported.votes.workloads().is_empty());
    let again = Votes::from_json(&kept.votes["istiod-1"].votes).unwrap();
    assert_eq!(again.votes, votes);
}

/// A workload with a UID.
fn workload(name: &str, uid: &str) -> Instance {
    Instance {
        workload: NamespacedName::new("shop", name),
        mark: Mark::Uid(uid.into()),
    }
}

/// As releases write it that list workloads: the file has no numbers of deciders and opponents, and
/// the number of judgements in the jury alone.
#[test]
fn a_decision_about_a_quarantine_is_read_and_written() {
    let mut counter = VoteCounter::default();
    for (pod, uid, answer) in [
        ("web-1", "w1", Answer::Rejected),
        ("web-2", "w2", Answer::Rejected),
        ("web-3", "w3", Answer::Accepted),
    ] {
        let Instance { workload, mark } = workload(pod, uid);
        let account = NamespacedName::new("shop", "web");
        let voter = Voter {
            account,
            workload,
            mark,
        };
        counter.add(voter, answer);
    }
    let votes = counter.votes();
    let turnout = Turnout {
        deciders: [workload("web-1", "w1")].into(),
        opponents: [workload("web-4", "w4")].into(),
        ..Turnout::default()
    };
    let report = ReplicaVotes {
        at: "2026-11-23T10:15:00Z".parse().unwrap(),
        votes: votes.to_json(&Namespace::new("shop")),
        turnout: Some(turnout.to_json()),
    };
    let jury = json!({
        "workloads": { "shop/web-1@w1": true, "shop/web-2@w2": true, "shop/web-5@w5": false },
        "rejudged": 2, "isPartial": false,
    });
    let kept = KeptQuarantine {
        object: ObjectRef {
            kind: Kind::VirtualService,
            name: NamespacedName::new("shop", "reviews"),
        },
        generation: 4,
        uid: Uid::new(UID),
        created: "2026-11-23T10:00:00Z".parse().ok(),
        votes: [("istiod-1".to_owned(), report)].into(),
        outcome: Some(QuarantineOutcome::Quarantined {
            message: "rejected by 2 of 3 workloads of its namespace".to_owned(),
            others: None,
            rejecting: Some(2),
            jury: Some(jury.clone()),
            before: None,
        }),
        rejudged: 2,
        version: None,
    };
    let name = "quarantine-decision.1.json";

    let written = serde_json::to_value(kept.to_config_map().unwrap()).unwrap();
    is_written_as(name, &written);

    let map: ConfigMap = serde_json::from_value(committed(name)).unwrap();
    let read = KeptQuarantine::from_config_map(&map).unwrap();
    assert_eq!((read.outcome, read.rejudged), (kept.outcome, 0));
    let stored = StoredJury::from_json(&jury).unwrap();
    assert_eq!((stored.rejudged, stored.workloads.len()), (2, 3));

    let stored = &read.votes["istiod-1"];
    let reported = Votes::from_json(&stored.votes).unwrap();
    assert_eq!((reported.votes, reported.is_partial), (votes, false));
    let read = stored.turnout.as_ref().and_then(Turnout::from_json);
    assert_eq!(read, Some(turnout));
}

#[test]
fn a_learned_scope_is_read_and_written() {
    let kept = KeptScope {
        workload: LearnedWorkload {
            namespace: Namespace::new("shop"),
            account: ServiceAccount::new("web"),
            name: "web".into(),
        },
        hosts: ["reviews.example", "ratings.example"]
            .map(Hostname::new)
            .into(),
        version: None,
    };
    let name = "learned-scope.1.json";
    let written = serde_json::to_value(kept.to_config_map().unwrap()).unwrap();
    is_written_as(name, &written);

    let map: ConfigMap = serde_json::from_value(committed(name)).unwrap();
    assert_eq!(KeptScope::from_config_map(&map).unwrap(), kept);
}

/// The name of a kind of line or input. Another kind needs a higher version of the format, a line
/// in its file, and another number in [`RECORDED`].
fn recorded(line: &Line) -> &'static str {
    match line {
        Line::Header(_) => "header",
        Line::Input(input) => recorded_input(input),
        Line::Proxy(_) => "proxy",
        Line::Names(_) => "names",
        Line::Watch(_) => "watch",
        Line::Unwatch(_) => "unwatch",
        Line::Push(_) => "push",
        Line::Synced(_) => "synced",
        Line::Gone(_) => "gone",
        Line::Took(_) => "took",
        Line::Nack(_) => "refused",
        Line::Complete(_) => "complete",
        Line::Lost(_) => "lost",
    }
}

fn recorded_input(input: &Input) -> &'static str {
    match input {
        Input::Put(_) => "put",
        Input::Removed(_) => "removed",
        Input::Mesh(_) => "mesh",
        Input::Networks(_) => "networks",
        Input::SecretReader(..) => "secretReader",
        Input::Keys(..) => "keys",
        Input::Roots(_) => "roots",
        Input::Quarantine(..) => "quarantine",
        Input::QuarantineRestored(..) => "quarantineRestored",
        Input::QuarantineReleased(_) => "quarantineReleased",
        Input::GatewayHost(..) => "gatewayHost",
        Input::Stages => "stages",
        Input::FindPeers => "findPeers",
        Input::Learned(..) => "learned",
        Input::Forgotten(..) => "forgotten",
        Input::Rollout(..) => "rollout",
        Input::RemotePut(..) => "remotePut",
        Input::RemoteRemoved(..) => "remoteRemoved",
        Input::RemoteReset(..) => "remoteReset",
        Input::RemoteGone(_) => "remoteGone",
        Input::RemoteSecretReader(..) => "remoteSecretReader",
    }
}

#[test]
fn every_line_of_a_recording_is_read_and_written() {
    let newest = usize::try_from(navarch_record::format::VERSION).unwrap();
    assert_eq!(RECORDED.len(), newest);
    for (format, kinds) in (1..).zip(RECORDED) {
        every_line_is_read_and_written(format, kinds);
    }
}

/// Reads the recording of a format, which has lines and inputs of this many kinds.
fn every_line_is_read_and_written(format: usize, expected: usize) {
    let file = path(&format!("recording.{format}.jsonl"));
    let text = fs::read_to_string(&file).unwrap();
    let mut segment = Segment::open(&file, true).unwrap();
    let mut kinds = BTreeSet::new();
    let mut lost = Vec::new();

    for (index, committed) in text.lines().enumerate() {
        let read = segment.next_line().unwrap().unwrap().line;
        let committed: Value = serde_json::from_str(committed).unwrap();
        let written = serde_json::to_value(&read).unwrap();
        compare(
            &committed,
            &written,
            &format!("line {}", index + 1),
            &mut lost,
        );
        kinds.insert(recorded(&read));
    }

    assert!(segment.next_line().unwrap().is_none());
    assert_eq!(lost, Vec::<String>::new());
    assert_eq!(kinds.len(), expected, "format {format}: {kinds:?}");
}
