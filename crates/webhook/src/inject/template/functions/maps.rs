//! Sprig's functions on maps. Maps are immutable here, so functions that change a map return a new
//! one.

use std::sync::Arc;

use gotmpl::{Result, Value};

use super::super::value::{Entries, map, text};
use super::Function;
use super::arguments::{as_map, at, bounded_list, map_at, printed, text_at};

/// The functions by name.
pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("dict", dict),
    ("get", |args| {
        Ok(map_at(args, 0)?
            .get(text_at(args, 1)?.as_str())
            .cloned()
            .unwrap_or_else(|| text("")))
    }),
    ("set", |args| {
        let mut entries = (*map_at(args, 0)?).clone();
        entries.insert(text_at(args, 1)?.into(), at(args, 2)?.clone());
        Ok(map(entries))
    }),
    ("unset", |args| {
        let mut entries = (*map_at(args, 0)?).clone();
        entries.remove(text_at(args, 1)?.as_str());
        Ok(map(entries))
    }),
    ("hasKey", |args| {
        Ok(Value::Bool(
            map_at(args, 0)?.contains_key(text_at(args, 1)?.as_str()),
        ))
    }),
    ("keys", |args| {
        bounded_list(
            map_at(args, 0)?
                .keys()
                .map(|key| Value::String(Arc::clone(key)))
                .collect(),
        )
    }),
    ("values", |args| {
        bounded_list(map_at(args, 0)?.values().cloned().collect())
    }),
    ("pluck", |args| {
        let key = text_at(args, 0)?;
        let found = args
            .iter()
            .skip(1)
            .map(|value| Ok(as_map(value)?.get(key.as_str()).cloned()));
        bounded_list(
            found
                .collect::<Result<Vec<_>>>()?
                .into_iter()
                .flatten()
                .collect(),
        )
    }),
    ("pick", |args| {
        let entries = map_at(args, 0)?;
        let keys = args
            .iter()
            .skip(1)
            .map(printed)
            .collect::<Result<Vec<_>>>()?;
        let kept = entries
            .iter()
            .filter(|(key, _)| keys.iter().any(|other| **other == ***key));
        Ok(map(kept
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()))
    }),
    ("merge", |args| {
        let mut merged = (*map_at(args, 0)?).clone();
        for value in args.iter().skip(1) {
            let above = as_map(value)?;
            merge(&mut merged, &above, Precedence::Below, 0);
        }
        Ok(map(merged))
    }),
    ("mergeOverwrite", |args| {
        let mut merged = (*map_at(args, 0)?).clone();
        for value in args.iter().skip(1) {
            let above = as_map(value)?;
            merge(&mut merged, &above, Precedence::Above, 0);
        }
        Ok(map(merged))
    }),
    ("dig", dig),
];

/// A map from alternating keys and values.
fn dict(args: &[Value]) -> Result<Value> {
    let mut entries = Entries::new();
    for pair in args.chunks(2) {
        let mut pair = pair.iter();
        if let Some(key) = pair.next() {
            entries.insert(
                printed(key)?.into(),
                pair.next().cloned().unwrap_or_else(|| text("")),
            );
        }
    }
    Ok(map(entries))
}

/// The precedence between two values of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precedence {
    /// The lower value, unless it is empty.
    Below,
    /// The upper value.
    Above,
}

/// The maximum depth of nested maps in a merge.
const MAX_DEPTH: usize = 32;

/// Merges a map into another, including nested maps.
fn merge(below: &mut Entries, above: &Entries, wins: Precedence, depth: usize) {
    for (key, value) in above {
        match (below.get(key), value) {
            (Some(Value::Map(under)), Value::Map(over)) if depth < MAX_DEPTH => {
                let mut merged = (**under).clone();
                merge(&mut merged, over, wins, depth + 1);
                below.insert(key.clone(), map(merged));
            }
            (Some(under), _) if wins == Precedence::Below && under.is_truthy() => {}
            (_, value) => {
                below.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The value in nested maps at the given keys, or a default: `dig "a" "b" default map`.
fn dig(args: &[Value]) -> Result<Value> {
    let keys = args.len().saturating_sub(2);
    let mut found = at(args, keys + 1)?.clone();
    for key in args.iter().take(keys) {
        match as_map(&found)?.get(printed(key)?.as_str()) {
            Some(value) => found = value.clone(),
            None => return at(args, keys).cloned(),
        }
    }
    Ok(found)
}
