//! The condition with the number of an object's proxies that have acknowledged it.

use serde_json::{Value, json};

use super::conditions::Conditions;

/// The type of the condition; istiod used the same type when it tracked distribution.
const TYPE: &str = "Reconciled";

/// The progress of a generation of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// `metadata.generation`, written as `observedGeneration` of the condition.
    pub generation: i64,
    /// The number of proxies that receive the object.
    pub reached: usize,
    /// The number of proxies that have acknowledged the generation.
    pub current: usize,
}

/// The corrected conditions of a status; `None` if it is up to date. Other conditions keep their
/// content and order.
///
/// An object that no proxy receives gets no condition, unless it had one before.
pub(super) fn correction(
    status: Option<&Value>,
    progress: Progress,
    now: &str,
) -> Option<Vec<Value>> {
    let conditions = Conditions::of(status, TYPE);
    let before = conditions.before();
    if before.is_none() && progress.reached == 0 {
        return None;
    }

    let status = if progress.current == progress.reached {
        "True"
    } else {
        "False"
    };

    let message = format!(
        "{}/{} proxies up to date.",
        progress.current, progress.reached
    );
    let generation = progress.generation.to_string();
    let text = |condition: &Value, member: &str| {
        condition.get(member).map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
    };

    let is = |member: &str, value: &str| {
        before
            .and_then(|before| text(before, member))
            .is_some_and(|text| text == value)
    };
    if is("status", status) && is("message", &message) && is("observedGeneration", &generation) {
        return None;
    }

    let since = before
        .filter(|_| is("status", status))
        .and_then(|before| text(before, "lastTransitionTime"));
    let condition = json!({
        "type": TYPE, "status": status, "message": message, "observedGeneration": progress.generation,
        "lastProbeTime": now, "lastTransitionTime": since.unwrap_or_else(|| now.to_owned()),
    });

    Some(conditions.with(condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_condition_is_corrected_and_those_of_others_stay() {
        let some = Progress {
            generation: 2,
            reached: 4,
            current: 3,
        };
        let all = Progress { current: 4, ..some };
        assert_eq!(
            correction(
                None,
                Progress {
                    generation: 2,
                    ..Progress::default()
                },
                "t0"
            ),
            None
        );

        let theirs = json!({ "type": "Mine", "status": "True" });
        let first = correction(Some(&json!({ "conditions": [theirs] })), some, "t1").unwrap();
        assert_eq!(first[0], theirs);
        assert_eq!(
            (&first[1]["status"], &first[1]["message"]),
            (&json!("False"), &json!("3/4 proxies up to date."))
        );
        let status = json!({ "conditions": first });
        assert_eq!(correction(Some(&status), some, "t2"), None);

        let more = correction(Some(&status), Progress { current: 2, ..some }, "t2").unwrap();
        assert_eq!(
            (&more[1]["lastProbeTime"], &more[1]["lastTransitionTime"]),
            (&json!("t2"), &json!("t1"))
        );
        let done = correction(Some(&status), all, "t3").unwrap();
        assert_eq!(
            (&done[1]["status"], &done[1]["lastTransitionTime"]),
            (&json!("True"), &json!("t3"))
        );

        assert_eq!(done.len(), 2);
        let none = Progress {
            reached: 0,
            current: 0,
            ..some
        };
        assert_eq!(
            correction(Some(&status), none, "t4").unwrap()[1]["message"],
            "0/0 proxies up to date."
        );
    }
}
