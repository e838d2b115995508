//! Sprig's functions on strings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gotmpl::{Result, Value};

use super::super::super::go_json;
use super::super::value::{of_json, text, to_json};
use super::Function;
use super::arguments::{
    at, bounded, bounded_list, fault, int_at, length_at, list_at, printed, text_at,
};

use navarch_base::base64_text;
use navarch_base::digest::sha256_hex;

/// The maximum number of repetitions of a string.
const MAX_REPEAT: usize = 100_000;

/// The functions by name.
pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("trim", |args| bounded(text_at(args, 0)?.trim().to_owned())),
    ("trimAll", |args| {
        let cut = text_at(args, 0)?;
        bounded(
            text_at(args, 1)?
                .trim_matches(|sign| cut.contains(sign))
                .to_owned(),
        )
    }),
    ("trimPrefix", |args| {
        let cut = text_at(args, 0)?;
        let whole = text_at(args, 1)?;
        bounded(whole.strip_prefix(&cut).unwrap_or(&whole).to_owned())
    }),
    ("trimSuffix", |args| {
        let cut = text_at(args, 0)?;
        let whole = text_at(args, 1)?;
        bounded(whole.strip_suffix(&cut).unwrap_or(&whole).to_owned())
    }),
    ("upper", |args| bounded(text_at(args, 0)?.to_uppercase())),
    ("lower", |args| bounded(text_at(args, 0)?.to_lowercase())),
    ("title", |args| bounded(title(&text_at(args, 0)?))),
    ("nospace", |args| {
        bounded(text_at(args, 0)?.split_whitespace().collect())
    }),
    ("trunc", trunc),
    ("substr", substr),
    ("repeat", |args| {
        let times = length_at(args, 0)?.min(MAX_REPEAT);
        let part = text_at(args, 1)?;
        if part.len().saturating_mul(times) > super::super::output::MAX_BYTES {
            return Err(fault("a string is too long"));
        }
        bounded(part.repeat(times))
    }),
    ("hasPrefix", |args| {
        Ok(Value::Bool(
            text_at(args, 1)?.starts_with(&text_at(args, 0)?),
        ))
    }),
    ("hasSuffix", |args| {
        Ok(Value::Bool(text_at(args, 1)?.ends_with(&text_at(args, 0)?)))
    }),
    ("nindent", |args| {
        let spaces = " ".repeat(length_at(args, 0)?.min(1_000));
        bounded(format!(
            "\n{spaces}{}",
            text_at(args, 1)?.replace('\n', &format!("\n{spaces}"))
        ))
    }),
    ("replace", replace),
    ("join", |args| {
        let between = text_at(args, 0)?;
        let items = list_at(args, 1)?;
        bounded(
            items
                .iter()
                .map(printed)
                .collect::<Result<Vec<_>>>()?
                .join(&between),
        )
    }),
    ("splitList", |args| {
        let between = text_at(args, 0)?;
        let whole = text_at(args, 1)?;
        bounded_list(whole.split(between.as_str()).map(text).collect())
    }),
    ("toString", |args| text_at(args, 0).map(text)),
    ("b64enc", |args| bounded(STANDARD.encode(text_at(args, 0)?))),
    ("b64dec", |args| {
        let decoded =
            base64_text::decode(&text_at(args, 0)?).map_err(|error| fault(error.to_string()))?;
        // Other text in its place would be injected, or hashed, without a word.
        bounded(String::from_utf8(decoded).map_err(|_| fault("b64dec: not UTF-8 text"))?)
    }),
    ("sha256sum", |args| bounded(sha256_hex(text_at(args, 0)?))),
    ("toJson", |args| {
        bounded(go_json::text(&to_json(at(args, 0)?)?))
    }),
    ("toRawJson", |args| {
        bounded(to_json(at(args, 0)?)?.to_string())
    }),
    ("toPrettyJson", |args| {
        bounded(
            serde_json::to_string_pretty(&to_json(at(args, 0)?)?)
                .map_err(|error| fault(error.to_string()))?,
        )
    }),
    ("fromJson", |args| {
        Ok(serde_json::from_str(&text_at(args, 0)?).map_or(Value::Nil, |json| of_json(&json)))
    }),
    ("regexMatch", |args| {
        Ok(Value::Bool(pattern(args)?.is_match(&text_at(args, 1)?)))
    }),
    ("regexReplaceAll", |args| {
        bounded(
            pattern(args)?
                .replace_all(&text_at(args, 1)?, text_at(args, 2)?.as_str())
                .into_owned(),
        )
    }),
    ("regexFind", |args| {
        let whole = text_at(args, 1)?;
        bounded(
            pattern(args)?
                .find(&whole)
                .map(|found| found.as_str().to_owned())
                .unwrap_or_default(),
        )
    }),
];

/// The first argument as a regular expression. The automaton's size is limited, and matching takes
/// linear time.
fn pattern(args: &[Value]) -> Result<regex::Regex> {
    let built = regex::RegexBuilder::new(&text_at(args, 0)?)
        .size_limit(1 << 20)
        .build();
    built.map_err(|error| fault(error.to_string()))
}

/// Capitalizes the first letter of each word.
fn title(whole: &str) -> String {
    let mut begins = true;
    let raise = |letter: char| {
        let raised = if begins {
            letter.to_uppercase().next().unwrap_or(letter)
        } else {
            letter
        };
        begins = letter.is_whitespace();
        raised
    };
    whole.chars().map(raise).collect()
}

/// The nearest character boundary at or before a byte index.
fn cut_at(whole: &str, mut place: usize) -> usize {
    place = place.min(whole.len());
    while !whole.is_char_boundary(place) {
        place -= 1;
    }
    place
}

/// Truncates a string; a negative length keeps the end.
fn trunc(args: &[Value]) -> Result<Value> {
    let length = int_at(args, 0)?;
    let whole = text_at(args, 1)?;
    let bytes = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
    let kept = if length >= 0 {
        whole.get(..cut_at(&whole, bytes))
    } else {
        whole.get(cut_at(&whole, whole.len().saturating_sub(bytes))..)
    };
    bounded(kept.unwrap_or_default().to_owned())
}

/// A substring; a negative end is the string's end.
fn substr(args: &[Value]) -> Result<Value> {
    let start = length_at(args, 0)?;
    let end = int_at(args, 1)?;
    let whole = text_at(args, 2)?;
    let end = usize::try_from(end).map_or(whole.len(), |end| cut_at(&whole, end));
    bounded(
        whole
            .get(cut_at(&whole, start)..end)
            .unwrap_or_default()
            .to_owned(),
    )
}

/// Replaces all occurrences of a substring.
fn replace(args: &[Value]) -> Result<Value> {
    let old = text_at(args, 0)?;
    let new = text_at(args, 1)?;
    let whole = text_at(args, 2)?;
    let growth = whole
        .matches(old.as_str())
        .count()
        .saturating_mul(new.len());
    if whole.len().saturating_add(growth) > 2 * super::super::output::MAX_BYTES {
        return Err(fault("a string is too long"));
    }
    bounded(whole.replace(old.as_str(), &new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_not_decoded_to_other_text() {
        let (_, decode) = FUNCTIONS
            .iter()
            .find(|(name, _)| *name == "b64dec")
            .unwrap();
        let decoded = |bytes: &[u8]| decode(&[text(STANDARD.encode(bytes))]);

        let word = decoded("ä".as_bytes()).unwrap();
        assert_eq!(printed(&word).unwrap(), "ä");
        let error = decoded(b"\xff\xfe").unwrap_err().to_string();
        assert!(error.contains("not UTF-8 text"), "{error}");
    }
}
