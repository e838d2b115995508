//! Tells in the status of a Gateway that an overlay of its objects is rejected.
//!
//! The control plane that deploys Gateways and the one that writes their statuses may be different
//! replicas, as each has its own lock. The condition is the message between them: the deployment
//! writes it, and the writer of statuses derives `Accepted` from it
//! (`object_status::rejected_overlays`).

use navarch_base::printable::{Layout, bounded};
use serde_json::{Value, json};

use crate::conditions::Conditions;

/// The type of the condition.
const DEPLOYED: &str = "navarch.io/Deployed";
/// The Gateway API's reason for parameters that cannot be used.
pub(crate) const INVALID_PARAMETERS: &str = "InvalidParameters";
/// The reason after the overlay was corrected.
const REASON_DEPLOYED: &str = "Deployed";
/// Maximum length of a message in bytes: texts of parsers and of the API server may quote a whole
/// object.
const MAX_MESSAGE: usize = 4096;

/// The rejection that a status reports, if any.
pub(crate) fn told(status: Option<&Value>) -> Option<&str> {
    let conditions = Conditions::of_status(status);
    let is_rejection = |condition: &&Value| {
        let is =
            |member: &str, text: &str| condition.get(member).is_some_and(|value| value == text);
        is("type", DEPLOYED) && is("status", "False") && is("reason", INVALID_PARAMETERS)
    };
    conditions
        .iter()
        .find(is_rejection)?
        .get("message")?
        .as_str()
}

/// A text that fits into a condition's message, and that terminals can show: whoever wrote the
/// ConfigMap may have chosen parts of it.
pub(super) fn message(text: &str) -> String {
    bounded(text, MAX_MESSAGE, Layout::Lines)
}

/// The conditions of a status that reports this rejection, or none; `None` if it already does.
pub(super) fn correction(
    status: Option<&Value>,
    generation: Option<i64>,
    rejection: Option<&str>,
    now: &str,
) -> Option<Vec<Value>> {
    if told(status) == rejection {
        return None;
    }

    let (is_deployed, reason) = match rejection {
        Some(_) => ("False", INVALID_PARAMETERS),
        None => ("True", REASON_DEPLOYED),
    };
    let conditions = Conditions::of(status, DEPLOYED);
    let since = conditions
        .before()
        .filter(|before| {
            before
                .get("status")
                .is_some_and(|status| status == is_deployed)
        })
        .and_then(|before| before.get("lastTransitionTime"))
        .cloned()
        .unwrap_or_else(|| json!(now));

    let condition = json!({
        "type": DEPLOYED,
        "status": is_deployed,
        "reason": reason,
        "message": rejection.unwrap_or_default(),
        "observedGeneration": generation.unwrap_or_default(),
        "lastTransitionTime": since,
    });
    Some(conditions.with(condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of a Gateway with these conditions.
    fn status(conditions: &[Value]) -> Value {
        json!({ "conditions": conditions })
    }

    #[test]
    fn a_rejection_is_reported_once_and_withdrawn_once() {
        let accepted = json!({ "type": "Accepted", "status": "True" });
        let before = status(std::slice::from_ref(&accepted));
        assert_eq!(
            correction(Some(&before), Some(2), None, "t0"),
            None,
            "nothing was ever told"
        );

        let rejected = correction(Some(&before), Some(2), Some("no such overlay"), "t1").unwrap();
        let condition = json!({
            "type": "navarch.io/Deployed", "status": "False", "reason": "InvalidParameters",
            "message": "no such overlay", "observedGeneration": 2, "lastTransitionTime": "t1",
        });
        assert_eq!(rejected, [accepted.clone(), condition]);

        let rejected = status(&rejected);
        assert_eq!(told(Some(&rejected)), Some("no such overlay"));
        assert_eq!(
            correction(Some(&rejected), Some(2), Some("no such overlay"), "t2"),
            None,
            "it is told already"
        );

        let other = correction(Some(&rejected), Some(3), Some("no object"), "t3").unwrap();
        assert_eq!(
            (&other[1]["message"], &other[1]["lastTransitionTime"]),
            (&json!("no object"), &json!("t1")),
            "it is rejected since then"
        );

        let corrected = correction(Some(&status(&other)), Some(4), None, "t4").unwrap();
        assert_eq!(
            (&corrected[0], &corrected[1]["status"]),
            (&accepted, &json!("True"))
        );
        assert_eq!(corrected[1]["lastTransitionTime"], "t4");
        let corrected = status(&corrected);
        assert_eq!(told(Some(&corrected)), None);
        assert_eq!(correction(Some(&corrected), Some(4), None, "t5"), None);
        assert_eq!(correction(None, Some(1), None, "t5"), None);
    }

    #[test]
    fn messages_are_bounded_at_character_boundaries() {
        assert_eq!(message("short"), "short");
        assert_eq!(message("a\u{1b}[2J"), "a\\u{1b}[2J");
        let long = message(&format!("aa{}", "ä".repeat(MAX_MESSAGE)));
        assert_eq!(long.len(), MAX_MESSAGE - 1);
        assert!(long.ends_with('…'));
    }
}
