//! What is wrong with an object, as its status says it.

use serde_json::{Map, Value, json};

use navarch_api::decode::{Outcome, decode_value};
use navarch_api::istio::{MessageLevel, MessageType, ValidationMessage};
use navarch_api::validation::{Verdict, validate_any};

/// istiod's code for an object that breaks the rules of its kind (`SchemaValidationError`).
const INVALID: &str = "IST0106";
/// Where codes are explained.
const EXPLANATIONS: &str = "https://istio.io/v1.32/docs/reference/config/analysis";

/// How many findings of each level are written: they differ in nothing, and a status has to fit into the object.
const OF_ONE: usize = 10;

/// The findings that belong into the status of an object that a server sent.
fn findings(object: &Value) -> Vec<ValidationMessage> {
    let verdict = match decode_value(object).1 {
        Outcome::Read { object, .. } => validate_any(&object),
        Outcome::Rejected(_) => return vec![invalid(MessageLevel::Error)],
        Outcome::Ignored => Verdict::default(),
    };
    let errors = verdict.errors.iter().take(OF_ONE).map(|_| MessageLevel::Error);
    let warnings = verdict.warnings.iter().take(OF_ONE).map(|_| MessageLevel::Warning);
    errors.chain(warnings).map(invalid).collect()
}

/// A finding about an object that breaks a rule. Messages have no place for words: the log and the debug pages say more.
fn invalid(level: MessageLevel) -> ValidationMessage {
    ValidationMessage {
        kind: MessageType { name: String::new(), code: INVALID.to_owned() },
        level,
        documentation_url: format!("{EXPLANATIONS}/{}/", INVALID.to_ascii_lowercase()),
    }
}

/// The members that the status should have otherwise than it has; `None` when it is right.
///
/// An object without findings, now and before, is left alone: nobody wants a write for every object there is.
pub(super) fn correction(object: &Value) -> Option<Map<String, Value>> {
    let status = object.get("status");
    let told = status.and_then(|status| status.get("validationMessages"));
    let found = findings(object);
    if found.is_empty() && told.is_none_or(|told| told.as_array().is_some_and(Vec::is_empty)) {
        return None;
    }
    let found = json!(found);
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let observed = status.and_then(|status| status.get("observedGeneration")).map(text);
    let same = told.is_some_and(|told| same(told, &found));
    if same && observed == Some(generation.to_string()) {
        return None;
    }
    let members = [("validationMessages", found), ("observedGeneration", json!(generation.to_string()))];
    Some(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A number or a text as a text.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether two lists of messages say the same: an absent text is an empty one.
fn same(told: &Value, found: &Value) -> bool {
    let read = |list: &Value| serde_json::from_value::<Vec<ValidationMessage>>(list.clone()).ok();
    read(told) == read(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hosts: &Value, status: &Value) -> Value {
        json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "ServiceEntry",
            "metadata": { "name": "a", "namespace": "b", "generation": 3 },
            "spec": { "hosts": hosts, "resolution": "DNS", "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }] },
            "status": status,
        })
    }

    #[test]
    fn a_status_is_corrected_once() {
        let broken = entry(&json!([]), &json!({ "conditions": [] }));
        let correction = super::correction(&broken).unwrap();
        assert_eq!(correction["observedGeneration"], "3");
        assert_eq!(correction["validationMessages"][0]["type"]["code"], INVALID);
        assert_eq!(correction["validationMessages"][0]["level"], "ERROR");
        let told = entry(&json!([]), &Value::Object(correction.clone()));
        assert_eq!(super::correction(&told), None);
        let mended = entry(&json!(["a.com"]), &Value::Object(correction));
        assert_eq!(super::correction(&mended).unwrap()["validationMessages"], json!([]));
        assert_eq!(super::correction(&entry(&json!(["a.com"]), &json!({}))), None);
    }
}
