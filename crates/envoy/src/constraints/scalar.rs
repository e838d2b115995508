//! Rules of single values: numbers, texts, bytes, enums, durations.

use navarch_proto::prost_reflect::{DynamicMessage, Kind, ReflectMessage, Value};
use regex::Regex;

use super::{count, is_on, part};

/// The rules of numeric types, by their names in `validate.FieldRules`.
const NUMBERS: [&str; 12] = [
    "float", "double", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
    "fixed64", "sfixed32", "sfixed64",
];

/// Characters of HTTP header names besides letters and digits, in strict mode.
const HEADER_NAME_SIGNS: &str = "!#$%&'*+-.^_|~`";

/// Checks whether an absent field is required.
pub(super) fn required(rules: Option<&DynamicMessage>) -> Result<(), String> {
    let of = |name: &str| is_on(part(rules, name).as_ref(), "required");
    if of("message") || of("any") || of("duration") || of("timestamp") {
        Err("is required".to_owned())
    } else {
        Ok(())
    }
}

/// Checks a set value. Wrapped numbers and texts are checked by the rules of their values.
pub(super) fn check(
    value: &Value,
    kind: Option<&Kind>,
    rules: &DynamicMessage,
) -> Result<(), String> {
    let inner = value
        .as_message()
        .filter(|message| message.descriptor().full_name().ends_with("Value"));
    let wrapped = inner.and_then(|wrapper| {
        wrapper
            .get_field_by_name("value")
            .map(std::borrow::Cow::into_owned)
    });
    let value = wrapped.as_ref().unwrap_or(value);

    for name in NUMBERS {
        if let (Some(rules), Some(number)) = (part(Some(rules), name), number(value)) {
            check_number(number, &rules)?;
        }
    }

    if let (Some(rules), Some(text)) = (part(Some(rules), "string"), value.as_str()) {
        check_text(text, &rules)?;
    }

    if let (Some(rules), Some(bytes)) = (part(Some(rules), "bytes"), value.as_bytes()) {
        check_length(
            bytes.len(),
            "bytes",
            count(Some(&rules), "min_len"),
            count(Some(&rules), "max_len"),
        )?;
    }

    if let (Some(rules), Some(number)) = (part(Some(rules), "enum"), value.as_enum_number()) {
        check_enum(number, kind, &rules)?;
    }

    if let (Some(rules), Some(duration)) = (part(Some(rules), "duration"), value.as_message()) {
        check_duration(nanos(duration), &rules)?;
    }

    Ok(())
}

/// A number of any type. No bound in Envoy's rules exceeds what an `f64` represents exactly.
#[expect(
    clippy::cast_precision_loss,
    reason = "bounds are small numbers that are only compared"
)]
fn number(value: &Value) -> Option<f64> {
    let whole = value
        .as_i64()
        .map(|number| number as f64)
        .or_else(|| value.as_u64().map(|number| number as f64));
    let small = value
        .as_i32()
        .map(f64::from)
        .or_else(|| value.as_u32().map(f64::from));
    small
        .or(whole)
        .or_else(|| value.as_f32().map(f64::from))
        .or_else(|| value.as_f64())
}

/// A bound, if set.
fn bound(rules: &DynamicMessage, name: &str) -> Option<f64> {
    rules
        .has_field_by_name(name)
        .then(|| rules.get_field_by_name(name).as_deref().and_then(number))
        .flatten()
}

fn listed<T>(rules: &DynamicMessage, name: &str, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    let list = rules.get_field_by_name(name);
    list.as_deref()
        .and_then(Value::as_list)
        .map(|items| items.iter().filter_map(read).collect())
        .unwrap_or_default()
}

fn check_number(number: f64, rules: &DynamicMessage) -> Result<(), String> {
    if number == 0.0 && is_on(Some(rules), "ignore_empty") {
        return Ok(());
    }

    let below = bound(rules, "lt").is_none_or(|most| number < most)
        && bound(rules, "lte").is_none_or(|most| number <= most);
    let above = bound(rules, "gt").is_none_or(|least| number > least)
        && bound(rules, "gte").is_none_or(|least| number >= least);
    let allowed = listed(rules, "in", self::number);
    let is_allowed = allowed.is_empty() || allowed.contains(&number);
    let is_constant = bound(rules, "const").is_none_or(|only| only.total_cmp(&number).is_eq());

    if below
        && above
        && is_allowed
        && is_constant
        && !listed(rules, "not_in", self::number).contains(&number)
    {
        return Ok(());
    }
    let limits: Vec<String> = [("gt", ">"), ("gte", ">="), ("lt", "<"), ("lte", "<=")]
        .into_iter()
        .filter_map(|(name, sign)| Some(format!("{sign} {}", bound(rules, name)?)))
        .collect();

    Err(format!(
        "{number} is not allowed, only {}",
        limits.join(" and ")
    ))
}

fn check_length(
    length: usize,
    unit: &str,
    least: Option<usize>,
    most: Option<usize>,
) -> Result<(), String> {
    match (least, most) {
        (Some(least), _) if length < least => {
            Err(format!("has {length} {unit}, at least {least} are needed"))
        }
        (_, Some(most)) if length > most => {
            Err(format!("has {length} {unit}, at most {most} are allowed"))
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

fn check_text(text: &str, rules: &DynamicMessage) -> Result<(), String> {
    if text.is_empty() && is_on(Some(rules), "ignore_empty") {
        return Ok(());
    }

    let limit = |name: &str| count(Some(rules), name);
    check_length(
        text.chars().count(),
        "letters",
        limit("min_len"),
        limit("max_len"),
    )?;

    check_length(text.len(), "bytes", limit("min_bytes"), limit("max_bytes"))?;
    let rule = |name: &str| {
        let is_set = rules.has_field_by_name(name);
        is_set
            .then(|| {
                rules
                    .get_field_by_name(name)
                    .and_then(|rule| rule.as_str().map(str::to_owned))
            })
            .flatten()
    };

    let is_good = rule("prefix").is_none_or(|prefix| text.starts_with(&prefix))
        && rule("suffix").is_none_or(|suffix| text.ends_with(&suffix))
        && rule("contains").is_none_or(|part| text.contains(&part))
        && rule("not_contains").is_none_or(|part| !text.contains(&part))
        && rule("const").is_none_or(|only| text == only)
        && rule("pattern")
            .and_then(|pattern| Regex::new(&pattern).ok())
            .is_none_or(|pattern| pattern.is_match(text));

    let read = |value: &Value| value.as_str().map(str::to_owned);
    let allowed = listed(rules, "in", read);
    let is_allowed = allowed.is_empty() || allowed.iter().any(|allowed| allowed == text);
    let is_forbidden = listed(rules, "not_in", read)
        .iter()
        .any(|forbidden| forbidden == text);
    if !is_good || !is_allowed || is_forbidden || !is_header_part(text, rules) {
        return Err(format!("{text:?} is not allowed"));
    }

    Ok(())
}

/// Whether a text is a valid HTTP header name or value, if the rules require that.
fn is_header_part(text: &str, rules: &DynamicMessage) -> bool {
    let which = rules
        .get_field_by_name("well_known_regex")
        .and_then(|which| which.as_enum_number());
    let strict = is_on(Some(rules), "strict");
    let name_sign = |sign: char| sign.is_ascii_alphanumeric() || HEADER_NAME_SIGNS.contains(sign);
    match which {
        Some(1) if strict => {
            let name = text.strip_prefix(':').unwrap_or(text);
            !name.is_empty() && name.chars().all(name_sign)
        }
        Some(2) if strict => text
            .chars()
            .all(|sign| sign == '\t' || !sign.is_ascii_control()),
        Some(1 | 2) => !text.contains(['\0', '\n', '\r']),
        Some(_) | None => true,
    }
}

fn check_enum(number: i32, kind: Option<&Kind>, rules: &DynamicMessage) -> Result<(), String> {
    let is_defined = kind
        .and_then(Kind::as_enum)
        .is_none_or(|values| values.get_value(number).is_some());
    let read = |value: &Value| value.as_i32();
    let allowed = listed(rules, "in", read);
    let is_allowed = allowed.is_empty() || allowed.contains(&number);
    if (is_on(Some(rules), "defined_only") && !is_defined)
        || !is_allowed
        || listed(rules, "not_in", read).contains(&number)
    {
        return Err(format!("the value {number} is not allowed"));
    }
    Ok(())
}

/// A duration in nanoseconds.
fn nanos(duration: &DynamicMessage) -> i128 {
    let part = |name: &str| duration.get_field_by_name(name);
    let seconds = part("seconds")
        .and_then(|seconds| seconds.as_i64())
        .unwrap_or_default();
    let nanos = part("nanos")
        .and_then(|nanos| nanos.as_i32())
        .unwrap_or_default();
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

fn check_duration(duration: i128, rules: &DynamicMessage) -> Result<(), String> {
    let bound = |name: &str| part(Some(rules), name).map(|bound| nanos(&bound));
    let is_good = bound("lt").is_none_or(|most| duration < most)
        && bound("lte").is_none_or(|most| duration <= most)
        && bound("gt").is_none_or(|least| duration > least)
        && bound("gte").is_none_or(|least| duration >= least);
    if is_good {
        Ok(())
    } else {
        Err(format!("{duration}ns is not allowed"))
    }
}
