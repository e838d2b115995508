//! Arguments of functions, and limits on their results.

use std::fmt::Write as _;
use std::sync::Arc;

use gotmpl::{Result, TemplateError, Value};

use super::super::output::{MAX_BYTES, Output};
use super::super::value::{Entries, text};

/// The maximum number of items in a generated list.
pub(super) const MAX_ITEMS: usize = 10_000;

/// Creates an error.
pub(super) fn fault(reason: impl Into<String>) -> TemplateError {
    TemplateError::Exec(reason.into())
}

pub(super) fn at(args: &[Value], index: usize) -> Result<&Value> {
    args.get(index)
        .ok_or_else(|| fault(format!("argument {} is missing", index + 1)))
}

/// A value as text: strings unchanged, other values as Go prints them.
///
/// # Errors
/// When the text is too long.
pub(super) fn printed(value: &Value) -> Result<String> {
    if let Value::String(value) = value {
        return Ok(value.to_string());
    }
    let mut output = Output::default();
    write!(output, "{value}").map_err(|_| fault("a string is too long"))?;
    Ok(output.into_text())
}

/// An argument as text.
pub(super) fn text_at(args: &[Value], index: usize) -> Result<String> {
    printed(at(args, index)?)
}

/// An argument as an integer; a string of digits is converted.
pub(super) fn int_at(args: &[Value], index: usize) -> Result<i64> {
    Ok(as_int(at(args, index)?))
}

/// A value as an integer; other values are zero.
pub(super) fn as_int(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        Value::Uint(number) => i64::try_from(*number).unwrap_or(i64::MAX),
        // Converts through text, which is exact for integers of this size.
        Value::Float(number) if number.abs() < 1e15 => {
            format!("{:.0}", number.trunc()).parse().unwrap_or(0)
        }
        Value::String(text) => text.trim().parse().unwrap_or(0),
        Value::Bool(value) => i64::from(*value),
        Value::Nil | Value::Float(_) | Value::List(_) | Value::Map(_) | Value::Function(_) => 0,
    }
}

/// An argument as a length; negative values are zero.
pub(super) fn length_at(args: &[Value], index: usize) -> Result<usize> {
    Ok(usize::try_from(int_at(args, index)?).unwrap_or(0))
}

/// An argument as a list; nil is the empty list.
pub(super) fn list_at(args: &[Value], index: usize) -> Result<Arc<[Value]>> {
    match at(args, index)? {
        Value::List(items) => Ok(Arc::clone(items)),
        Value::Nil => Ok(Vec::new().into()),
        other => Err(fault(format!(
            "argument {} is {}, not a list",
            index + 1,
            other.type_name()
        ))),
    }
}

/// A value as a map; nil is the empty map.
pub(super) fn as_map(value: &Value) -> Result<Arc<Entries>> {
    match value {
        Value::Map(entries) => Ok(Arc::clone(entries)),
        Value::Nil => Ok(Arc::default()),
        other => Err(fault(format!("expected a map, not {}", other.type_name()))),
    }
}

/// An argument as a map.
pub(super) fn map_at(args: &[Value], index: usize) -> Result<Arc<Entries>> {
    as_map(at(args, index)?)
}

/// Returns a string if it is within the limit.
pub(super) fn bounded(result: String) -> Result<Value> {
    if result.len() > MAX_BYTES {
        Err(fault("a string is too long"))
    } else {
        Ok(text(result))
    }
}

pub(super) fn bounded_list(result: Vec<Value>) -> Result<Value> {
    if result.len() > MAX_ITEMS {
        Err(fault("a list is too long"))
    } else {
        Ok(Value::List(result.into()))
    }
}
