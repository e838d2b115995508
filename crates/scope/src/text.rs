//! Suggestions as YAML with the evidence as comments, and differences as text.

use std::fmt;

use navarch_base::printable::escape;
use serde_json::Value;

use super::difference::{Difference, Differences, HostCalls};
use super::evidence::Calls;
use super::policy::PolicySuggestion;
use super::suggestion::{KeptHost, Reason, Suggestion, Suggestions};

/// Words that are not texts in YAML 1.1.
const YAML_WORDS: [&str; 10] = [
    "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~",
];
/// How many unused hosts of a workload are in the text.
const MAX_UNUSED: usize = 10;
/// What extensions of Envoy do, by a part of their names.
const PURPOSES: [(&str, &str); 6] = [
    ("tracers", "tracing"),
    ("access_loggers", "access logs"),
    ("ext_authz", "external authorization"),
    ("jwt_authn", "keys of token issuers"),
    ("ratelimit", "rate limits"),
    ("ext_proc", "external processing"),
];

impl fmt::Display for Suggestions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, suggestion) in self.workloads.iter().enumerate() {
            if index > 0 {
                f.write_str("---\n")?;
            }
            fmt::Display::fmt(suggestion, f)?;
        }
        for name in &self.others {
            comment(
                f,
                &format!("{name} has evidence, but is not selected, or has no sidecar now"),
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        comment(f, &self.head())?;
        if let Some(after) = self.after {
            let before = self.before;
            let saving = format!(
                "One proxy has {} clusters and {} bytes of configuration now, {} and {} with this \
                 Sidecar.",
                before.clusters, before.bytes, after.clusters, after.bytes
            );
            comment(f, &saving)?;
        }
        for reason in &self.against {
            comment(f, &format!("No Sidecar: {reason}"))?;
        }
        for warning in &self.warnings {
            comment(f, &format!("Warning: {warning}"))?;
        }

        if let Some(sidecar) = &self.sidecar {
            let notes = |host: &str| {
                let kept = self.hosts.iter().find(|kept| kept.host == host);
                kept.map(notes).unwrap_or_default()
            };
            yaml(f, sidecar, 0, &notes)?;
        }
        if let Some(policy) = &self.policy {
            if self.sidecar.is_some() {
                f.write_str("---\n")?;
            }
            fmt::Display::fmt(policy, f)?;
        }
        Ok(())
    }
}

impl Suggestion {
    /// The first line: the workload, and the time over which its calls were counted.
    fn head(&self) -> String {
        let pods = plural(self.pods, "pod");
        match (self.since, self.read) {
            (Some(since), Some(read)) => format!(
                "{}: {pods}, calls counted since {since}, last read at {read}",
                self.workload
            ),
            (None, Some(read)) => format!("{}: {pods}, last read at {read}", self.workload),
            (_, None) => format!("{}: {pods}", self.workload),
        }
    }
}

impl fmt::Display for PolicySuggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for reason in &self.against {
            comment(f, &format!("No policy: {reason}"))?;
        }
        for warning in &self.warnings {
            comment(f, &format!("Warning: {warning}"))?;
        }
        let Some(policy) = &self.policy else {
            return Ok(());
        };

        let consequence = "With this policy, clients that neither it nor another ALLOW policy \
                           admits are denied.";
        comment(f, consequence)?;
        let notes = |principal: &str| {
            let calls = self.clients.get(principal);
            calls.map(described).into_iter().collect()
        };
        yaml(f, policy, 0, &notes)
    }
}

/// Why a host is kept, one line each.
fn notes(kept: &KeptHost) -> Vec<String> {
    let note = |reason: &Reason| match reason {
        Reason::Called(calls) => described(calls),
        Reason::Extensions(names) => {
            let names: Vec<String> = names.iter().map(|name| purpose(name)).collect();
            format!("kept: the proxy itself sends to it ({})", names.join(", "))
        }
        Reason::VirtualService(name) => {
            format!("kept: VirtualService {name} routes calls of this workload")
        }
    };
    kept.reasons.iter().map(note).collect()
}

/// What an extension is for, with its name.
fn purpose(extension: &str) -> String {
    let known = PURPOSES.iter().find(|(part, _)| extension.contains(part));
    match known {
        Some((_, purpose)) => format!("{purpose}: {extension}"),
        None if extension.is_empty() => "its listeners".to_owned(),
        None => extension.to_owned(),
    }
}

/// Counts as text: `120 requests, 0.8 % failed, last seen 2026-01-01T00:00:00Z`.
fn described(calls: &Calls) -> String {
    let counts = calls.counts;
    let mut parts = Vec::new();
    for (count, name) in [
        (counts.requests, "request"),
        (counts.connections, "connection"),
    ] {
        if count > 0 {
            parts.push(plural(count, name));
        }
    }

    for (count, name) in [(counts.failed, "failed"), (counts.denied, "denied")] {
        if count > 0 {
            let permille = u128::from(count) * 1000 / u128::from(counts.total().max(1));
            parts.push(format!("{}.{} % {name}", permille / 10, permille % 10));
        }
    }

    if let Some(seen) = calls.last_seen {
        parts.push(format!("last seen {seen}"));
    }
    parts.join(", ")
}

fn plural<Count>(count: Count, name: &str) -> String
where
    Count: fmt::Display + Copy + PartialEq + From<u8>,
{
    if count == Count::from(1) {
        format!("{count} {name}")
    } else {
        format!("{count} {name}s")
    }
}

/// Writes a line of a comment. The text may contain what others have written.
fn comment(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    writeln!(f, "# {}", escape(text))
}

/// Writes an object as YAML, with the notes on texts in lists above them.
fn yaml(
    f: &mut fmt::Formatter<'_>,
    value: &Value,
    indent: usize,
    notes: &dyn Fn(&str) -> Vec<String>,
) -> fmt::Result {
    let Value::Object(fields) = value else {
        return Ok(());
    };

    for (key, value) in fields {
        let key = key_text(key);
        match value {
            Value::Object(_) => {
                writeln!(f, "{:indent$}{key}:", "")?;
                yaml(f, value, indent + 2, notes)?;
            }
            Value::Array(items) => {
                writeln!(f, "{:indent$}{key}:", "")?;
                items
                    .iter()
                    .try_for_each(|item| yaml_item(f, item, indent, notes))?;
            }
            Value::String(text) => writeln!(f, "{:indent$}{key}: {}", "", plain(text))?,
            // Their JSON is YAML, too.
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                writeln!(f, "{:indent$}{key}: {value}", "")?;
            }
        }
    }
    Ok(())
}

/// An object of a list as YAML.
struct Indented<'a> {
    value: &'a Value,
    indent: usize,
    notes: &'a dyn Fn(&str) -> Vec<String>,
}

impl fmt::Display for Indented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        yaml(f, self.value, self.indent, self.notes)
    }
}

/// Writes an item of a list.
fn yaml_item(
    f: &mut fmt::Formatter<'_>,
    item: &Value,
    indent: usize,
    notes: &dyn Fn(&str) -> Vec<String>,
) -> fmt::Result {
    match item {
        Value::Object(_) => {
            let text = Indented {
                value: item,
                indent: indent + 2,
                notes,
            };
            write!(f, "{:indent$}- {}", "", text.to_string().trim_start())
        }
        Value::String(text) => {
            for note in notes(text) {
                write!(f, "{:indent$}", "")?;
                comment(f, &note)?;
            }
            writeln!(f, "{:indent$}- {item}", "")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            writeln!(f, "{:indent$}- {item}", "")
        }
    }
}

/// A key, in quotation marks unless it is a plain word.
fn key_text(key: &str) -> String {
    if key.chars().all(|sign| sign.is_ascii_alphabetic()) {
        plain(key)
    } else {
        Value::from(key).to_string()
    }
}

/// A text, in quotation marks if YAML would read it as something else: JSON texts are YAML, too.
fn plain(text: &str) -> String {
    let begins_plain = text.starts_with(|sign: char| sign.is_ascii_alphabetic());
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "-./".contains(sign);
    let is_word = YAML_WORDS.contains(&text.to_ascii_lowercase().as_str());
    if begins_plain && text.chars().all(is_plain) && !is_word {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.workloads
            .iter()
            .try_for_each(|difference| fmt::Display::fmt(difference, f))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sidecar = self.sidecar.as_deref().unwrap_or("no Sidecar");
        let visible = plural(self.visible, "visible service");
        let head = format!("{}: {visible}, {sidecar}", self.workload);
        writeln!(f, "{}", escape(&head))?;
        if !self.is_read {
            return writeln!(f, "  no metrics of it were read");
        }

        for (title, all) in [
            ("cut", &self.cut),
            ("gone", &self.gone),
            ("denied", &self.denied),
            ("refused", &self.refused),
        ] {
            for one in all {
                writeln!(f, "  {title}: {}", HostLine(one))?;
            }
        }
        if self.unused > 0 {
            let shown = self.first_unused.iter().take(MAX_UNUSED);
            let shown: Vec<&str> = shown.map(String::as_str).collect();
            let more = match self.unused.saturating_sub(shown.len()) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let unused = self.unused;
            writeln!(
                f,
                "  allowed and never called: {unused}: {}{more}",
                escape(&shown.join(", "))
            )?;
        }
        Ok(())
    }
}

/// Calls to a host in one line.
struct HostLine<'a>(&'a HostCalls);

impl fmt::Display for HostLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostCalls {
            host,
            calls,
            reason,
        } = self.0;
        let line = format!("{host} ({}): {reason}", described(calls));
        f.write_str(&escape(&line))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::evidence::Counts;

    #[test]
    fn counts_are_described_with_shares() {
        let calls = Calls {
            counts: Counts {
                requests: 1,
                connections: 249,
                failed: 2,
                denied: 250,
            },
            last_seen: None,
        };
        let text = "1 request, 249 connections, 0.8 % failed, 100.0 % denied";
        assert_eq!(described(&calls), text);
    }

    struct Written(Value);

    impl fmt::Display for Written {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            yaml(f, &self.0, 0, &|text| vec![format!("{text}\n- forged")])
        }
    }

    #[test]
    fn an_object_is_yaml_in_which_keys_and_comments_forge_nothing() {
        let object = json!({
            "spec": { "labels": { "y": "1", "a/b": "true", "app": "web-1" }, "egress": [{ "hosts": ["./a"] }] },
        });
        let text = Written(object.clone()).to_string();
        assert!(text.contains("# ./a\\n- forged\n"), "{text}");
        let read: Value = navarch_api::yaml::parse(&text, navarch_api::yaml::Schema::V1_1).unwrap();
        assert_eq!(read, object);
    }
}
