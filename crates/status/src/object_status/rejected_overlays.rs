//! A Gateway whose overlay is rejected is not accepted.

use serde_json::{Map, Value, json};

use crate::gateways::rejected_overlays::{INVALID_PARAMETERS, told};

/// Makes the wanted condition `Accepted` of a Gateway false if its current status reports that an
/// overlay is rejected. A fault that the translation has found comes first.
pub(super) fn apply(wanted: &mut Map<String, Value>, status: Option<&Value>) {
    let Some(rejection) = told(status) else {
        return;
    };
    let conditions = wanted.get_mut("conditions").and_then(Value::as_array_mut);
    let is = |condition: &Value, member: &str, text: &str| {
        condition.get(member).is_some_and(|value| value == text)
    };
    let accepted = conditions
        .into_iter()
        .flatten()
        .find(|condition| is(condition, "type", "Accepted") && is(condition, "status", "True"));

    if let Some(accepted) = accepted.and_then(Value::as_object_mut) {
        accepted.insert("status".to_owned(), json!("False"));
        accepted.insert("reason".to_owned(), json!(INVALID_PARAMETERS));
        accepted.insert("message".to_owned(), json!(rejection));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wanted status with these conditions.
    fn wanted(status: &str, reason: &str) -> Map<String, Value> {
        let conditions = json!([
            { "type": "Accepted", "status": status, "reason": reason, "message": "m", "observedGeneration": 3 },
            { "type": "Programmed", "status": "True", "reason": "Programmed" },
        ]);
        Map::from_iter([("conditions".to_owned(), conditions)])
    }

    /// A current status with this condition of the deployment.
    fn current(status: &str, reason: &str) -> Value {
        json!({ "conditions": [
            { "type": "Accepted", "status": "True", "reason": "Accepted" },
            { "type": "navarch.io/Deployed", "status": status, "reason": reason, "message": "shop/opts: no" },
        ] })
    }

    #[test]
    fn a_gateway_with_a_rejected_overlay_is_not_accepted() {
        let mut status = wanted("True", "Accepted");
        apply(&mut status, Some(&current("False", "InvalidParameters")));
        let expected = json!({
            "type": "Accepted", "status": "False", "reason": "InvalidParameters",
            "message": "shop/opts: no", "observedGeneration": 3,
        });
        assert_eq!(status["conditions"][0], expected);
        assert_eq!(
            status["conditions"][1],
            wanted("True", "Accepted")["conditions"][1],
            "its proxies run on"
        );
    }

    #[test]
    fn other_statuses_stay() {
        for (before, current) in [
            (
                wanted("True", "Accepted"),
                Some(current("True", "Deployed")),
            ),
            (wanted("True", "Accepted"), None),
            (
                wanted("False", "UnsupportedAddress"),
                Some(current("False", "InvalidParameters")),
            ),
            (Map::new(), Some(current("False", "InvalidParameters"))),
        ] {
            let mut after = before.clone();
            apply(&mut after, current.as_ref());
            assert_eq!(after, before, "{current:?}");
        }
    }
}
