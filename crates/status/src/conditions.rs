//! Updates one condition of a status.

use serde_json::Value;

/// The conditions of a status, one of which is our own.
pub(super) struct Conditions {
    all: Vec<Value>,
    /// The index of our own condition.
    place: Option<usize>,
}

impl Conditions {
    pub(super) fn of_status(status: Option<&Value>) -> &[Value] {
        status
            .and_then(|status| status.get("conditions"))
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// The conditions of a status; our own has this type.
    pub(super) fn of(status: Option<&Value>, type_: &str) -> Self {
        let all = Self::of_status(status).to_vec();
        let place = all
            .iter()
            .position(|condition| condition.get("type").is_some_and(|one| one == type_));
        Self { all, place }
    }

    /// Our own condition.
    pub(super) fn before(&self) -> Option<&Value> {
        self.all.get(self.place?)
    }

    /// All conditions, with our own updated. The others keep their content and order.
    pub(super) fn with(mut self, condition: Value) -> Vec<Value> {
        match self.place.and_then(|place| self.all.get_mut(place)) {
            Some(place) => *place = condition,
            None => self.all.push(condition),
        }
        self.all
    }
}
