//! `/debug/view/objects`: the configuration objects, with their distribution progress and their
//! problems.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::rows::{Rows, fits};
use crate::admin::applied::{Distribution, distribution};
use crate::admin::distribution::configuration;
use crate::admin::reply::{self, Parameters};
use crate::admin::state::AdminState;
use navarch_api::any_object::AnyObject;
use navarch_api::decode::Subject;
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_source::{Problem, ProblemKind};

/// Maximum number of problems shown per object.
const MAX_PROBLEMS: usize = 10;

/// The name of an object, by which problems and progress are found. Texts: a problem may be about
/// a kind that is not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: String,
    namespace: String,
    name: String,
}

impl From<&ObjectRef> for Key {
    fn from(object: &ObjectRef) -> Self {
        Self {
            kind: object.kind.as_str().to_owned(),
            namespace: object.name.namespace.to_string(),
            name: object.name.name.to_string(),
        }
    }
}

/// The state of one name.
#[derive(Debug, Default)]
struct ObjectEntry {
    /// The effective object; `None` if it was never accepted.
    object: Option<AnyObject>,
    /// Why the current version is not effective, or incomplete.
    problems: Vec<ProblemText>,
    /// Envoy's error, and whether the previous version is served.
    quarantined: Option<(String, bool)>,
}

#[derive(Debug)]
struct ProblemText {
    /// Whether the object is rejected because of it.
    is_error: bool,
    text: String,
}

/// The selected objects, those with problems first.
pub(in crate::admin) async fn objects(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let all = entries(&state.push.context(), &state);
    let kinds = kinds_of(&all);
    let is = |key: &str, value: &str| {
        parameters
            .get(key)
            .is_none_or(|wanted| wanted.is_empty() || wanted == value)
    };
    let total_with_problems = all.values().filter(|entry| entry.has_problems()).count();

    let mut chosen: Vec<(Key, ObjectEntry)> = all
        .into_iter()
        .filter(|(key, entry)| {
            is("kind", &key.kind)
                && is("namespace", &key.namespace)
                && (!parameters.contains_key("problems") || entry.has_problems())
                && fits(&parameters, &[&key.kind, &key.namespace, &key.name])
        })
        .collect();

    chosen.sort_by_key(|(_, entry)| !entry.has_problems());
    let rows = Rows::from_parameters(&parameters);
    let total = chosen.len();
    let mut shown = rows.of(chosen);
    let taken = shown
        .iter_mut()
        .filter_map(|(_, entry)| entry.object.take())
        .collect();
    let Ok(progress) = distribution(&state.push, &state.connections, taken).await else {
        return reply::ended();
    };

    let progress: BTreeMap<Key, (AnyObject, Distribution)> = progress
        .into_iter()
        .map(|(object, progress)| (Key::from(&object.object_ref()), (object, progress)))
        .collect();
    let values: Vec<Value> = shown
        .iter()
        .map(|(key, entry)| row(key, entry, progress.get(key)))
        .collect();
    let mut answer = rows.answer(total, &values);

    if let Some(answer) = answer.as_object_mut() {
        answer.insert("kinds".to_owned(), json!(kinds));
        answer.insert("withProblems".to_owned(), json!(total_with_problems));
    }

    reply::json(&parameters, &answer)
}

impl ObjectEntry {
    fn has_problems(&self) -> bool {
        !self.problems.is_empty() || self.quarantined.is_some()
    }
}

/// All objects that are effective, rejected or quarantined.
fn entries(context: &PushContext, state: &AdminState) -> BTreeMap<Key, ObjectEntry> {
    let mut all: BTreeMap<Key, ObjectEntry> = BTreeMap::new();

    for object in configuration(context) {
        let key = Key::from(&object.object_ref());
        all.entry(key).or_default().object = Some(object);
    }

    for (name, one) in &context.quarantined {
        let quarantined = (one.message.to_string(), one.served.is_some());
        all.entry(Key::from(name)).or_default().quarantined = Some(quarantined);
    }

    for problem in state
        .problems
        .all()
        .into_values()
        .flatten()
        .filter(|problem| is_of_istio(&problem.subject))
    {
        let Subject {
            kind,
            namespace,
            name,
            ..
        } = problem.subject.clone();
        let key = Key {
            kind,
            namespace,
            name,
        };
        let entry = all.entry(key).or_default();
        entry.problems.push(problem_text(&problem));
    }

    all
}

/// Whether a problem is about one of Istio's objects.
fn is_of_istio(subject: &Subject) -> bool {
    !subject.name.is_empty()
        && subject
            .api_version
            .split('/')
            .next()
            .is_some_and(|group| group.ends_with(".istio.io"))
}

fn problem_text(problem: &Problem) -> ProblemText {
    let is_error = match problem.fault {
        ProblemKind::Rejected(_)
        | ProblemKind::UnknownKind
        | ProblemKind::Duplicate { .. }
        | ProblemKind::Unreadable(_) => true,
        ProblemKind::UnknownField(_) | ProblemKind::Warning(_) => false,
    };
    ProblemText {
        is_error,
        text: format!("{}: {}", problem.place, problem.fault),
    }
}

/// Number of objects of each kind.
fn kinds_of(all: &BTreeMap<Key, ObjectEntry>) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for key in all.keys() {
        *kinds.entry(key.kind.clone()).or_default() += 1;
    }
    kinds
}

fn row(key: &Key, entry: &ObjectEntry, progress: Option<&(AnyObject, Distribution)>) -> Value {
    let meta = progress.map(|(object, _)| object.meta());
    let progress = progress.map(|(_, progress)| progress);
    let problems: Vec<Value> = entry
        .problems
        .iter()
        .take(MAX_PROBLEMS)
        .map(|text| json!({ "level": if text.is_error { "error" } else { "warning" }, "text": text.text }))
        .collect();

    json!({
        "kind": key.kind, "namespace": key.namespace, "name": key.name,
        "inForce": meta.is_some(),
        "generation": meta.map(|meta| meta.generation),
        "created": meta.and_then(|meta| meta.created).map(|created| created.to_string()),
        "reached": progress.map(|progress| progress.reached),
        "taken": progress.map(|progress| progress.reached.saturating_sub(progress.unacknowledged.len())),
        "problems": problems,
        "moreProblems": entry.problems.len().saturating_sub(MAX_PROBLEMS),
        "quarantined": entry.quarantined.as_ref().map(|(error, served)| json!({ "said": error, "servesBefore": served })),
    })
}
