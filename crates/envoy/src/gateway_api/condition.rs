//! Status conditions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fault::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionStatus {
    True,
    /// The condition is false.
    False,
}

/// A condition without its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

/// Conditions by type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions(BTreeMap<&'static str, Condition>);

impl ConditionStatus {
    /// The text in a status.
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
        }
    }
}

impl Condition {
    pub(super) fn new(
        status: ConditionStatus,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }
}

impl Conditions {
    pub(super) fn set_true(
        &mut self,
        kind: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.0
            .insert(kind, Condition::new(ConditionStatus::True, reason, message));
    }

    pub(super) fn set_false(
        &mut self,
        kind: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.0.insert(
            kind,
            Condition::new(ConditionStatus::False, reason, message),
        );
    }

    /// Sets a condition to false because of a fault.
    pub(super) fn fault(&mut self, kind: &'static str, fault: &Fault) {
        self.set_false(kind, fault.reason, fault.message.clone());
    }

    pub(super) fn set(&mut self, kind: &'static str, condition: Condition) {
        self.0.insert(kind, condition);
    }

    /// Appends to the message of a condition.
    pub(super) fn append(&mut self, kind: &'static str, text: &str) {
        if let Some(condition) = self.0.get_mut(kind) {
            condition.message.push_str(text);
        }
    }

    /// The JSON form, for an object of this generation. The writer sets the transition times.
    pub(super) fn to_json(&self, generation: i64) -> Value {
        let write = |(kind, condition): (&&str, &Condition)| {
            json!({
                "type": kind,
                "status": condition.status.as_str(),
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
            })
        };
        self.0.iter().map(write).collect()
    }
}
