//! The objects that users write, the definitions of their kinds, and what the analyzers find.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::crds;
use navarch_api::decode::{Outcome as Decoding, decode_value};
use navarch_api::validation::validate_any;
use serde_json::Value;

use super::Installation;
use super::objects::{DEFINITION, group, items, text, title};
use super::row::{Outcome, Row};
use crate::analyzer;
use crate::context::{Context, Mesh};
use crate::filter::Filter;
use crate::kind::Kind;
use crate::messages::Level;
use crate::read::Reader;
use crate::resource::Resource;

/// How groups of Istio's kinds end.
const ISTIO: &str = ".istio.io";
/// The group of the Gateway API.
const GATEWAY_API: &str = "gateway.networking.k8s.io";
/// How missing definitions are added.
const APPLY_DEFINITIONS: &str = "navarch crds | kubectl apply --server-side --force-conflicts -f -";

/// What to do with an object that is rejected.
const CORRECT: &str = "correct or delete the object: it would be ignored";

/// The rows about configuration. `missing` are the kinds that could not be read.
pub(super) fn rows(
    installation: Installation<'_>,
    mesh: Mesh,
    missing: &BTreeSet<Kind>,
) -> Vec<Row> {
    let mut rows = objects(installation);
    rows.extend(definitions(installation));
    rows.extend(analysis(installation, mesh, missing));
    rows
}

/// What is read of each object, and how many are read completely.
fn objects(installation: Installation<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();

    let is_configuration = |object: &&Value| {
        let group = group(object);
        group.ends_with(ISTIO) || group == GATEWAY_API
    };
    for object in installation.objects.iter().filter(is_configuration) {
        let found = object_rows(object);
        if found.is_empty() {
            *counts.entry(text(object, "/kind")).or_default() += 1;
        }
        rows.extend(found);
    }

    if !counts.is_empty() {
        let total: usize = counts.values().sum();
        let kinds: Vec<_> = counts
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        let reason = format!("are valid, and have no unknown field: {}", kinds.join(", "));
        rows.push(Row::new(Outcome::Same, format!("{total} objects"), reason));
    }
    rows
}

/// Why an object is not read, or not completely.
fn object_rows(object: &Value) -> Vec<Row> {
    let row = |outcome, reason: String| Row::new(outcome, title(object), reason);
    let (decoded, unknown_fields) = match decode_value(object).1 {
        Decoding::Read {
            object,
            unknown_fields,
        } => (object, unknown_fields),
        // Kinds of the Gateway API that no control plane of Istio's reads are others' business.
        Decoding::Ignored if group(object) == GATEWAY_API => return Vec::new(),
        Decoding::Ignored => {
            let reason = format!("{} is not read", text(object, "/apiVersion"));
            return vec![row(Outcome::NoEffect, reason)];
        }
        Decoding::Rejected(error) => {
            let reason = format!("is rejected: {}", error.reason);
            return vec![row(Outcome::DoFirst, reason).at(error.path).then(CORRECT)];
        }
    };

    let verdict = validate_any(&decoded);
    let unknown = unknown_fields.into_iter().map(|field| {
        let reason = "is no field that Navarch knows".to_owned();
        row(Outcome::NoEffect, reason).at(field)
    });
    let errors = verdict.errors.into_iter().map(|problem| {
        let reason = format!("is rejected: {}", problem.message);
        row(Outcome::DoFirst, reason)
            .at(problem.field)
            .then(CORRECT)
    });
    let without_effect = verdict
        .warnings
        .into_iter()
        .filter(|problem| problem.is_without_effect())
        .map(|problem| row(Outcome::NoEffect, problem.message).at(problem.field));

    errors.chain(unknown).chain(without_effect).collect()
}

/// Whether the kinds of Istio are defined, in the versions that are read.
fn definitions(installation: Installation<'_>) -> Vec<Row> {
    let defined: Vec<_> = installation
        .objects
        .of(DEFINITION)
        .filter(|definition| text(definition, "/spec/group").ends_with(ISTIO))
        .collect();
    // A dump without any definition has left them out.
    if defined.is_empty() {
        return Vec::new();
    }

    let mut rows: Vec<_> = defined
        .iter()
        .filter_map(|definition| unread_definition(definition))
        .collect();
    let mut absent = Vec::new();
    for kind in crds::kinds() {
        let definition = defined.iter().find(|definition| {
            text(definition, "/spec/group") == kind.group
                && text(definition, "/spec/names/plural") == kind.plural
        });
        match definition {
            Some(definition) if serves(definition, kind.version) => {}
            Some(definition) => {
                let reason = format!("does not serve {}, which is read", kind.version);
                let row = Row::new(Outcome::DoFirst, title(definition), reason);
                rows.push(row.at("spec.versions").then(APPLY_DEFINITIONS));
            }
            None => absent.push(format!("{}.{}", kind.plural, kind.group)),
        }
    }

    if !absent.is_empty() {
        let reason = format!("are not defined, as before: {}", absent.join(", "));
        let row = Row::new(Outcome::Same, "Kinds of newer releases", reason);
        rows.push(row.then(format!("to use them: {APPLY_DEFINITIONS}")));
    }
    rows
}

/// A definition of which no served version is read.
fn unread_definition(definition: &Value) -> Option<Row> {
    let [group, plural] =
        ["/spec/group", "/spec/names/plural"].map(|pointer| text(definition, pointer));
    let mut versions = items(definition, "/spec/versions").map(|version| text(version, "/name"));
    if versions.any(|version| crds::is_defined(group, version, plural)) {
        return None;
    }

    let reason = "objects of this kind are not read";
    Some(Row::new(Outcome::NoEffect, title(definition), reason))
}

/// Whether a definition serves a version.
fn serves(definition: &Value, version: &str) -> bool {
    items(definition, "/spec/versions").any(|one| {
        let is_served = one.get("served").and_then(Value::as_bool);
        text(one, "/name") == version && is_served.unwrap_or(true)
    })
}

/// How much the analyzers find, which istioctl's find as well.
fn analysis(installation: Installation<'_>, mesh: Mesh, missing: &BTreeSet<Kind>) -> Option<Row> {
    let mut reader = Reader::new("", true);
    let mut kinds = BTreeSet::new();
    for object in installation.objects.iter() {
        let kind = Kind::of(text(object, "/apiVersion"), text(object, "/kind"));
        if let Some(kind) = kind.filter(|kind| *kind != Kind::Secret) {
            reader.add(Arc::new(Resource::of_cluster(kind, None, object.clone())));
            kinds.insert(kind);
        }
    }

    // Values of Secrets are never read, and a dump may lack what only clusters have.
    let mut missing = missing.clone();
    missing.insert(Kind::Secret);
    missing.extend(Kind::of_runtime().filter(|kind| !kinds.contains(kind)));
    let context = Context::new(reader, mesh, missing);
    let findings = analyzer::analyze(&context, &[], &Filter::default());

    let count = |level: Level| {
        let messages = findings.messages.iter();
        messages.filter(|message| message.level() == level).count()
    };
    let [errors, warnings] = [Level::Error, Level::Warning].map(count);
    if errors + warnings == 0 {
        return None;
    }

    let reason =
        format!("has {errors} errors and {warnings} warnings of istioctl's analyzers, as before");
    let row = Row::new(Outcome::Same, "Configuration", reason);
    Some(row.then("navarch analyze -A shows them"))
}
