//! Converts findings to an object's status.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use navarch_analysis::{Level, Message};
use navarch_api::istio::{MessageLevel, MessageType, ValidationMessage};

/// Maximum number of findings of one code: they look the same, and a status must fit into the
/// object.
const MAX_FINDINGS_PER_CODE: usize = 10;

/// The findings of a status, without messages, which are in the log.
fn written(found: &[&Message]) -> Vec<ValidationMessage> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut is_few = |message: &&&Message| {
        let count = counts.entry(message.kind.code).or_default();
        *count += 1;
        *count <= MAX_FINDINGS_PER_CODE
    };
    let few = found.iter().filter(|message| is_few(message));
    few.map(|message| ValidationMessage {
        kind: MessageType {
            name: String::new(),
            code: message.kind.code.to_owned(),
        },
        level: match message.level() {
            Level::Error => MessageLevel::Error,
            Level::Warning => MessageLevel::Warning,
            Level::Info => MessageLevel::Info,
        },
        documentation_url: message.documentation_url(),
    })
    .collect()
}

/// The status fields that must change for the findings in this generation of the object; `None` if
/// the status is up to date.
///
/// An object without current or former findings is not changed, to avoid a write for every object.
pub(super) fn correction(
    status: &Value,
    generation: i64,
    found: &[&Message],
) -> Option<Map<String, Value>> {
    let current = status.get("validationMessages");
    if found.is_empty()
        && current.is_none_or(|current| current.as_array().is_some_and(Vec::is_empty))
    {
        return None;
    }
    let found = json!(written(found));
    let observed = status.get("observedGeneration").map(text);

    if current.is_some_and(|current| same(current, &found))
        && observed == Some(generation.to_string())
    {
        return None;
    }
    let members = [
        ("validationMessages", found),
        ("observedGeneration", json!(generation.to_string())),
    ];

    Some(
        members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

/// A number or a string as a string.
fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether two lists of messages are equal; a missing string equals an empty one.
fn same(written: &Value, found: &Value) -> bool {
    let read = |list: &Value| serde_json::from_value::<Vec<ValidationMessage>>(list.clone()).ok();
    read(written) == read(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use navarch_analysis::{Context, Incremental, Mesh, Reader};

    use super::*;

    /// The findings of a VirtualService with a number of gateways, none of which exists.
    fn found(gateways: usize) -> Vec<Message> {
        let names: Vec<_> = (0..gateways)
            .map(|number| format!("g{number:02}"))
            .collect();
        let service = json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "VirtualService",
            "metadata": { "name": "a", "namespace": "b" },
            "spec": { "hosts": ["*.com"], "gateways": names, "http": [{ "redirect": { "uri": "/" } }] },
        });

        let mut reader = Reader::new("b", true);
        reader.read("a.json", &service.to_string());
        let mut found = Incremental::default();
        found.update(
            &Context::new(reader, Mesh::default(), BTreeSet::new()),
            &BTreeSet::new(),
        );

        found
            .messages()
            .into_iter()
            .filter(|message| message.kind.code == "IST0101")
            .collect()
    }

    #[test]
    fn a_status_is_corrected_once() {
        let messages = found(1);
        let messages: Vec<_> = messages.iter().collect();
        let first = correction(&json!({ "conditions": [] }), 3, &messages).unwrap();
        assert_eq!(first["observedGeneration"], "3");
        let message = &first["validationMessages"][0];
        assert_eq!(
            (&message["type"]["code"], &message["level"]),
            (&json!("IST0101"), &json!("ERROR"))
        );

        let status = Value::Object(first);
        assert_eq!(correction(&status, 3, &messages), None);
        assert!(
            correction(&status, 4, &messages).is_some(),
            "it is of another generation"
        );
        assert_eq!(
            correction(&status, 4, &[]).unwrap()["validationMessages"],
            json!([])
        );

        assert_eq!(correction(&Value::Null, 4, &[]), None);
    }

    #[test]
    fn messages_of_one_code_are_limited() {
        let messages = found(MAX_FINDINGS_PER_CODE + 3);
        let messages: Vec<_> = messages.iter().collect();
        assert_eq!(
            (messages.len(), written(&messages).len()),
            (MAX_FINDINGS_PER_CODE + 3, MAX_FINDINGS_PER_CODE)
        );
    }
}
