//! The services of Istio's own tests as a source (`--registries=Mock`), for trying out
//! configuration without a cluster.

use tokio::sync::mpsc;

use super::{Batch, SourceEvent};
use crate::event_log::event_log;
use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Format, Outcome, decode_documents};

/// The name of the source in problems and in the log.
const SOURCE: &str = "mock://";

/// The services `hello` and `world`, each with two workloads, `foo` without workloads, and two
/// external hosts.
const OBJECTS: &str = include_str!("mock/objects.yaml");

/// The services of Istio's own tests, in the namespace `default`. They never change.
#[derive(Clone, Copy, Debug, Default)]
pub struct MockSource;

impl MockSource {
    /// Sends the objects, and then waits until the receiver is closed.
    pub async fn run(self, events: mpsc::Sender<Batch>) {
        let mut batch: Batch = objects().map(SourceEvent::Added).collect();
        batch.push(SourceEvent::FullSync);

        event_log!(SOURCE.into()).record(&batch);
        if events.send(batch).await.is_ok() {
            events.closed().await;
        }
    }
}

/// The objects of the source.
fn objects() -> impl Iterator<Item = AnyObject> {
    decode_documents(OBJECTS, Format::Yaml)
        .into_iter()
        .filter_map(|decoded| match decoded.outcome {
            Outcome::Read { object, .. } => Some(object),
            Outcome::Ignored | Outcome::Rejected(_) => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::validation::validate_any;

    #[test]
    fn all_documents_are_valid_objects_without_unknown_fields() {
        for decoded in decode_documents(OBJECTS, Format::Yaml) {
            let Outcome::Read {
                object,
                unknown_fields,
            } = decoded.outcome
            else {
                panic!("{decoded:?}")
            };
            assert!(unknown_fields.is_empty(), "{unknown_fields:?}");
            assert!(
                validate_any(&object).is_valid(),
                "{:?}",
                object.object_ref()
            );
        }
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "the source ends with the test")]
    async fn all_objects_come_in_one_batch_with_the_full_sync() {
        let (sender, mut events) = mpsc::channel(1);
        let running = tokio::spawn(MockSource.run(sender));
        let batch = events.recv().await.unwrap();
        assert_eq!(batch.last(), Some(&SourceEvent::FullSync));

        let names: Vec<_> = batch
            .iter()
            .filter_map(|event| {
                let SourceEvent::Added(object) = event else {
                    return None;
                };
                Some(object.object_ref().to_string())
            })
            .collect();
        assert_eq!(
            names,
            [
                "Service default/hello",
                "Pod default/hello-v0",
                "Pod default/hello-v1",
                "EndpointSlice default/hello",
                "Service default/world",
                "Pod default/world-v0",
                "Pod default/world-v1",
                "EndpointSlice default/world",
                "Service default/foo",
                "ServiceEntry default/httpbin",
                "ServiceEntry default/httpsbin",
            ]
        );

        // It ends with its receiver, not before.
        assert!(!running.is_finished());
        drop(events);
        running.await.unwrap();
    }
}
