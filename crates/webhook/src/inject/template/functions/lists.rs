//! Sprig's functions on lists, and its functions that select values.

use gotmpl::{Result, Value};

use super::super::value::{text, to_json};
use super::Function;
use super::arguments::{at, bounded_list, fault, list_at, printed};

/// The functions by name.
pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("list", |args| bounded_list(args.to_vec())),
    ("tuple", |args| bounded_list(args.to_vec())),
    ("first", |args| {
        Ok(list_at(args, 0)?.first().cloned().unwrap_or(Value::Nil))
    }),
    ("last", |args| {
        Ok(list_at(args, 0)?.last().cloned().unwrap_or(Value::Nil))
    }),
    ("rest", |args| {
        Ok(Value::List(
            list_at(args, 0)?.iter().skip(1).cloned().collect(),
        ))
    }),
    ("initial", |args| {
        let list = list_at(args, 0)?;
        Ok(Value::List(
            list.iter()
                .take(list.len().saturating_sub(1))
                .cloned()
                .collect(),
        ))
    }),
    ("append", |args| {
        with(&list_at(args, 0)?, [at(args, 1)?.clone()])
    }),
    ("push", |args| {
        with(&list_at(args, 0)?, [at(args, 1)?.clone()])
    }),
    ("prepend", |args| {
        with(&[at(args, 1)?.clone()], list_at(args, 0)?.iter().cloned())
    }),
    ("concat", |args| {
        let mut all = Vec::new();
        for index in 0..args.len() {
            all.extend(list_at(args, index)?.iter().cloned());
        }
        bounded_list(all)
    }),
    ("reverse", |args| {
        Ok(Value::List(
            list_at(args, 0)?.iter().rev().cloned().collect(),
        ))
    }),
    ("has", |args| {
        let wanted = to_json(at(args, 0)?)?;
        let same = |value: &Value| Ok(to_json(value)? == wanted);
        let found = list_at(args, 1)?
            .iter()
            .map(same)
            .collect::<Result<Vec<bool>>>()?;
        Ok(Value::Bool(found.contains(&true)))
    }),
    ("compact", |args| {
        Ok(Value::List(
            list_at(args, 0)?
                .iter()
                .filter(|value| value.is_truthy())
                .cloned()
                .collect(),
        ))
    }),
    ("uniq", |args| {
        let mut seen = std::collections::BTreeSet::new();
        let mut kept = Vec::new();
        for value in list_at(args, 0)?.iter() {
            if seen.insert(to_json(value)?.to_string()) {
                kept.push(value.clone());
            }
        }
        bounded_list(kept)
    }),
    ("sortAlpha", |args| {
        let mut texts = list_at(args, 0)?
            .iter()
            .map(printed)
            .collect::<Result<Vec<_>>>()?;
        texts.sort();
        bounded_list(texts.into_iter().map(text).collect())
    }),
    ("toStrings", |args| {
        bounded_list(
            list_at(args, 0)?
                .iter()
                .map(|value| printed(value).map(text))
                .collect::<Result<Vec<_>>>()?,
        )
    }),
    ("default", |args| {
        Ok(args
            .get(1)
            .filter(|value| value.is_truthy())
            .unwrap_or(at(args, 0)?)
            .clone())
    }),
    ("empty", |args| Ok(Value::Bool(!at(args, 0)?.is_truthy()))),
    ("coalesce", |args| {
        Ok(args
            .iter()
            .find(|value| value.is_truthy())
            .cloned()
            .unwrap_or(Value::Nil))
    }),
    ("any", |args| {
        Ok(Value::Bool(args.iter().any(Value::is_truthy)))
    }),
    ("all", |args| {
        Ok(Value::Bool(args.iter().all(Value::is_truthy)))
    }),
    ("ternary", |args| {
        at(args, usize::from(!at(args, 2)?.is_truthy())).cloned()
    }),
    ("fail", |args| Err(fault(printed(at(args, 0)?)?))),
    ("kindOf", |args| Ok(text(kind(at(args, 0)?)))),
    ("kindIs", |args| {
        Ok(Value::Bool(printed(at(args, 0)?)? == kind(at(args, 1)?)))
    }),
];

fn with(list: &[Value], further: impl IntoIterator<Item = Value>) -> Result<Value> {
    bounded_list(list.iter().cloned().chain(further).collect())
}

/// Go's name for the kind of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Uint(_) => "uint",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "slice",
        Value::Map(_) => "map",
        Value::Function(_) => "func",
    }
}
