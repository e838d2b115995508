//! Sprig's functions on numbers.

use gotmpl::{Result, Value};

use super::Function;
use super::arguments::{MAX_ITEMS, as_int, at, bounded_list, fault, int_at, text_at};

/// The functions by name.
pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("int", |args| int_at(args, 0).map(Value::Int)),
    ("int64", |args| int_at(args, 0).map(Value::Int)),
    ("atoi", |args| int_at(args, 0).map(Value::Int)),
    ("float64", |args| {
        Ok(Value::Float(text_at(args, 0)?.parse().unwrap_or_default()))
    }),
    ("add", |args| {
        Ok(Value::Int(
            args.iter().map(as_int).fold(0, i64::wrapping_add),
        ))
    }),
    ("add1", |args| {
        Ok(Value::Int(int_at(args, 0)?.wrapping_add(1)))
    }),
    ("sub", |args| {
        Ok(Value::Int(int_at(args, 0)?.wrapping_sub(int_at(args, 1)?)))
    }),
    ("mul", |args| {
        Ok(Value::Int(
            args.iter().map(as_int).fold(1, i64::wrapping_mul),
        ))
    }),
    ("div", |args| divided(args, i64::checked_div)),
    ("mod", |args| divided(args, i64::checked_rem)),
    ("max", |args| {
        Ok(Value::Int(args.iter().map(as_int).max().unwrap_or(0)))
    }),
    ("min", |args| {
        Ok(Value::Int(args.iter().map(as_int).min().unwrap_or(0)))
    }),
    ("until", |args| counted(0, int_at(args, 0)?, 1)),
    ("untilStep", |args| {
        counted(int_at(args, 0)?, int_at(args, 1)?, int_at(args, 2)?)
    }),
];

/// Divides a number by another.
fn divided(args: &[Value], by: fn(i64, i64) -> Option<i64>) -> Result<Value> {
    let outcome = by(as_int(at(args, 0)?), as_int(at(args, 1)?));
    outcome
        .map(Value::Int)
        .ok_or_else(|| fault("division by zero"))
}

/// The numbers from `start` up or down to `end`, excluding `end`.
fn counted(start: i64, end: i64, step: i64) -> Result<Value> {
    if step == 0 || (step > 0) != (end > start) {
        return bounded_list(Vec::new());
    }

    let mut numbers = Vec::new();
    let mut next = Some(start);
    while let Some(number) = next.filter(|number| {
        if step > 0 {
            *number < end
        } else {
            *number > end
        }
    }) {
        if numbers.len() >= MAX_ITEMS {
            return Err(fault("a list is too long"));
        }
        numbers.push(Value::Int(number));
        next = number.checked_add(step);
    }

    bounded_list(numbers)
}
