//! Restores the pod before an earlier injection.

use std::borrow::Cow;

use serde_json::Value;

use super::error::InjectError;
use super::finish::prometheus;
use super::names::{OVERRIDES, STATUS};
use super::pod::{self, List};

/// The container names in the status annotation of an earlier injection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) containers: Vec<String>,
    pub(super) init_containers: Vec<String>,
}

impl Status {
    /// Parses the status annotation of a pod; `None` if it is absent or invalid.
    pub(super) fn of(pod: &Value) -> Option<Self> {
        let status: Value = serde_json::from_str(pod::annotation(pod, STATUS)?).ok()?;
        let names = |list: List| -> Vec<String> {
            let names = status
                .get(list.field())
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            names
                .filter_map(|name| Some(name.as_str()?.to_owned()))
                .collect()
        };
        status.is_object().then(|| Self {
            containers: names(List::Containers),
            init_containers: names(List::Init),
        })
    }

    pub(super) fn names(&self, list: List) -> &[String] {
        match list {
            List::Containers => &self.containers,
            List::Init => &self.init_containers,
        }
    }
}

/// The user's fields for containers that the injection also contains.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Overrides {
    pub(super) containers: Vec<Value>,
    pub(super) init_containers: Vec<Value>,
}

impl Overrides {
    /// Parses the annotation of a pod; empty if absent.
    ///
    /// # Errors
    /// When the annotation contains no lists of containers.
    pub(super) fn of(pod: &Value) -> Result<Self, InjectError> {
        let Some(text) = pod::annotation(pod, OVERRIDES) else {
            return Ok(Self::default());
        };

        let bad = |reason: String| InjectError::Annotation {
            name: OVERRIDES.to_owned(),
            value: text.chars().take(120).collect(),
            reason,
        };
        let value: Value =
            serde_json::from_str(text).map_err(|error| bad(format!("it is not JSON: {error}")))?;
        let list = |list: List| match value.get(list.field()) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) if items.iter().all(Value::is_object) => Ok(items.clone()),
            Some(_) => Err(bad(format!("{} is not a list of containers", list.field()))),
        };

        if !value.is_object() && !value.is_null() {
            return Err(bad("it is not a JSON object".to_owned()));
        }

        Ok(Self {
            containers: list(List::Containers)?,
            init_containers: list(List::Init)?,
        })
    }

    /// The containers of a list.
    pub(super) fn list(&self, list: List) -> &[Value] {
        match list {
            List::Containers => &self.containers,
            List::Init => &self.init_containers,
        }
    }

    /// Appends a container to a list.
    pub(super) fn push(&mut self, list: List, container: Value) {
        match list {
            List::Containers => self.containers.push(container),
            List::Init => self.init_containers.push(container),
        }
    }
}

/// The pod without the additions of an earlier injection, and with the user's containers from the
/// overrides.
pub(super) fn stripped<'a>(
    pod: &'a Value,
    overrides: &Overrides,
    status: Option<&Status>,
    agent_port: &str,
) -> Cow<'a, Value> {
    let mut stripped = Cow::Borrowed(pod);

    if let Some(status) = status {
        let pod = stripped.to_mut();

        for list in [List::Containers, List::Init] {
            if let Some(containers) = pod::containers_mut(pod, list) {
                containers.retain(|container| {
                    !status
                        .names(list)
                        .iter()
                        .any(|name| name == pod::name(container))
                });
            }
        }

        let annotations = pod::annotations_mut(pod);
        if prometheus::port(annotations).as_deref() == Some(agent_port) {
            prometheus::clear(annotations);
        }

        annotations.remove(STATUS);
    }

    for list in [List::Containers, List::Init] {
        for container in overrides.list(list) {
            if pod::find(pod::containers(&stripped, list), pod::name(container)).is_none() {
                let spec = pod::member_map(pod::as_map(stripped.to_mut()), "spec");
                let containers = spec
                    .entry(list.field())
                    .or_insert_with(|| Value::Array(Vec::new()));
                containers
                    .as_array_mut()
                    .into_iter()
                    .for_each(|list| list.push(container.clone()));
            }
        }
    }

    stripped
}
