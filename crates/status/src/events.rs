//! Writes Events, which `kubectl describe` lists for an object.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use super::cluster::Cluster;
use super::denials::Denials;

/// The reporting controller of Events, the same for all replicas.
const CONTROLLER: &str = "navarch";
/// Maximum length of a note that the API server accepts, in bytes.
const NOTE: usize = 1024;
/// Maximum length of the object's name in an Event's name.
const NAME: usize = 200;
/// Maximum length of the reporting instance.
const INSTANCE: usize = 128;
/// The namespace of Events about cluster-scoped objects.
const NO_NAMESPACE: &str = "default";

/// Writes Events.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// The client of the API server.
    pub(crate) cluster: Cluster,
    /// The name of this replica.
    pub(crate) identity: String,
    /// Whether it may write them: istiod's role does not allow it.
    pub(crate) denials: Denials,
}

/// A warning about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Warning<'a> {
    /// The reason, in one word.
    pub(crate) reason: &'a str,
    /// The action, in one word.
    pub(crate) action: &'a str,
    pub(crate) note: &'a str,
}

impl Events {
    /// Writes a new Event. kube's recorder would count an Event with a different note as a
    /// repetition, and keep the first note. Without the right to write Events nothing happens.
    pub(crate) async fn warn(
        &self,
        regarding: ObjectReference,
        warning: Warning<'_>,
    ) -> Result<(), kube::Error> {
        let namespace = regarding
            .namespace
            .clone()
            .unwrap_or_else(|| NO_NAMESPACE.to_owned());
        let events = Api::<Event>::namespaced(self.cluster.0.clone(), &namespace);
        let written = events
            .create(
                &PostParams::default(),
                &self.event(regarding, warning, namespace),
            )
            .await;
        match written {
            Err(error) if self.denials.covers("events", &error) => Ok(()),
            written => written.map(drop),
        }
    }

    fn event(&self, regarding: ObjectReference, warning: Warning<'_>, namespace: String) -> Event {
        let name = regarding.name.as_deref().unwrap_or(CONTROLLER);
        Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", shortened(name, NAME))),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some(warning.reason.to_owned()),
            action: Some(warning.action.to_owned()),
            note: Some(shortened(warning.note, NOTE).to_owned()),
            event_time: Some(MicroTime(jiff::Timestamp::now())),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(shortened(&self.identity, INSTANCE).to_owned()),
            regarding: Some(regarding),
            ..Event::default()
        }
    }
}

/// The longest prefix of a text within a number of bytes.
fn shortened(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_messages_are_truncated_at_character_boundaries() {
        assert_eq!(shortened("short", NOTE), "short");
        let long = "ä".repeat(NOTE);
        assert_eq!(shortened(&long, NOTE).len(), NOTE);
        assert_eq!(shortened(&format!("a{long}"), NOTE).len(), NOTE - 1);
    }
}
