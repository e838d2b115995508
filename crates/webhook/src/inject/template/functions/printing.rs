//! Printing and quoting. These functions replace the template language's own, to limit their
//! output.

use std::fmt::Write as _;

use gotmpl::{Result, Value};

use super::super::value::text;
use super::Function;
use super::arguments::{as_int, at, bounded, fault, printed};
use navarch_base::go_text::quoted;

/// The functions by name.
pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("print", print),
    ("println", |args| {
        bounded(
            args.iter()
                .map(printed)
                .collect::<Result<Vec<_>>>()?
                .join(" ")
                + "\n",
        )
    }),
    ("printf", printf),
    ("quote", |args| each(args, quoted)),
    ("squote", |args| each(args, |part| format!("'{part}'"))),
    ("cat", |args| {
        let parts = args
            .iter()
            .filter(|value| !matches!(value, Value::Nil))
            .map(printed);
        bounded(parts.collect::<Result<Vec<_>>>()?.join(" "))
    }),
    ("index", index),
    ("eq", |args| {
        let first = at(args, 0)?;
        Ok(Value::Bool(
            args.iter().skip(1).any(|other| are_equal(first, other)),
        ))
    }),
    ("ne", |args| {
        Ok(Value::Bool(!are_equal(at(args, 0)?, at(args, 1)?)))
    }),
];

/// Prints values, with spaces between adjacent values that are not strings.
fn print(args: &[Value]) -> Result<Value> {
    let mut out = String::new();
    let mut before: Option<&Value> = None;
    for value in args {
        let spaced =
            before.is_some_and(|before| before.as_str().is_none() && value.as_str().is_none());
        if spaced {
            out.push(' ');
        }
        out.push_str(&printed(value)?);
        before = Some(value);
    }
    bounded(out)
}

/// Prints values by a format with the verbs `%s`, `%v`, `%d`, `%t`, `%q`, `%f`, `%x` and `%%`.
fn printf(args: &[Value]) -> Result<Value> {
    let format = printed(at(args, 0)?)?;
    let mut values = args.iter().skip(1);
    let mut out = String::new();
    let mut signs = format.chars();
    while let Some(sign) = signs.next() {
        if sign != '%' {
            out.push(sign);
            continue;
        }

        let mut flags = String::new();
        let verb = loop {
            match signs.next() {
                Some(flag @ ('0'..='9' | '.' | '-' | '+' | ' ' | '#')) => flags.push(flag),
                Some(verb) => break verb,
                None => return Err(fault("a format string ends within a verb")),
            }
        };

        if verb == '%' {
            out.push('%');
            continue;
        }

        match values.next() {
            Some(value) => out.push_str(&padded(&flags, &formatted(verb, &flags, value)?)?),
            None => {
                let _ = write!(out, "%!{verb}(MISSING)");
            }
        }
    }

    bounded(out)
}

fn formatted(verb: char, flags: &str, value: &Value) -> Result<String> {
    Ok(match verb {
        's' | 'v' | 't' => printed(value)?,
        'd' => as_int(value).to_string(),
        'x' => format!("{:x}", as_int(value)),
        'q' => quoted(&printed(value)?),
        'f' => {
            let digits = flags
                .split_once('.')
                .and_then(|(_, digits)| digits.parse().ok())
                .unwrap_or(6_usize)
                .min(30);
            let number = value
                .as_float()
                .or_else(|| printed(value).ok()?.parse().ok())
                .unwrap_or_default();
            format!("{number:.digits$}")
        }
        _ => return Err(fault(format!("unknown format verb %{verb}"))),
    })
}

/// Pads a text with spaces or zeros to the width in the flags.
fn padded(flags: &str, part: &str) -> Result<String> {
    let width = flags
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_start_matches(['+', ' ', '#']);
    let (left, width) = width
        .strip_prefix('-')
        .map_or((false, width), |width| (true, width));
    let zero = width.starts_with('0');

    let width: usize = if width.is_empty() {
        0
    } else {
        width
            .parse()
            .map_err(|_| fault("unsupported width in a format string"))?
    };

    if width > 1_000 {
        return Err(fault("the width in a format string is too large"));
    }

    Ok(match (left, zero) {
        (true, _) => format!("{part:<width$}"),
        (false, true) => format!("{part:0>width$}"),
        (false, false) => format!("{part:>width$}"),
    })
}

/// Applies a function to the text of each value except nil, and joins the results with spaces.
fn each(args: &[Value], to_each: fn(&str) -> String) -> Result<Value> {
    let set = args.iter().filter(|value| !matches!(value, Value::Nil));
    bounded(
        set.map(|value| Ok(to_each(&printed(value)?)))
            .collect::<Result<Vec<_>>>()?
            .join(" "),
    )
}

/// Indexes lists and maps repeatedly. In a map of strings, a missing key returns the empty string.
fn index(args: &[Value]) -> Result<Value> {
    let mut value = at(args, 0)?.clone();
    for step in args.iter().skip(1) {
        value = match (&value, step) {
            (Value::Map(entries), Value::String(key)) => match entries.get(key) {
                Some(found) => found.clone(),
                None if entries.values().all(|other| other.as_str().is_some()) => text(""),
                None => Value::Nil,
            },
            (value, step) => value.index(step)?,
        };
    }
    Ok(value)
}

/// Whether two values are equal; values of different kinds are not equal.
fn are_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Nil, Value::Nil) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Int(_) | Value::Uint(_), Value::Int(_) | Value::Uint(_)) => as_int(a) == as_int(b),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b).is_eq(),
        (Value::Int(_) | Value::Uint(_), Value::Float(_))
        | (Value::Float(_), Value::Int(_) | Value::Uint(_)) => {
            as_int(a) == as_int(b) && a.as_float() == b.as_float()
        }
        (_, _) => false,
    }
}
