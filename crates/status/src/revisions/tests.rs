use std::sync::Arc;

use kube::api::DynamicObject;
use kube::core::Status;
use kube::runtime::watcher::{Error, Event};
use serde_json::json;
use tokio::sync::watch;

use super::RevisionSource::{DefaultValidator, Namespaces, TagServices, TagWebhooks};
use super::*;

/// An object with these labels.
fn object(name: &str, labels: serde_json::Value) -> DynamicObject {
    serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap()
}

/// Complete information: the namespace `canaries` belongs to `canary`, whose tag is `next`, and
/// `default` is the default revision.
fn known() -> Known {
    let mut known = Known::default();
    for source in [TagWebhooks, TagServices, DefaultValidator, Namespaces] {
        assert_eq!(
            known.own("default"),
            None,
            "the information is incomplete before"
        );
        known.take(source, Event::Init);
        known.take(source, Event::InitDone);
    }

    let tag = object(
        "istio-revision-tag-next",
        json!({ "istio.io/rev": "canary", "istio.io/tag": "next" }),
    );
    known.take(TagWebhooks, Event::Apply(tag));
    known.take(
        Namespaces,
        Event::Apply(object("canaries", json!({ "istio.io/rev": "canary" }))),
    );
    known.take(Namespaces, Event::Apply(object("shop", json!({}))));
    known
}

/// Which of the two revisions an object belongs to.
fn owners(known: &Known, namespace: &str, label: Option<&str>) -> Vec<&'static str> {
    ["default", "canary"]
        .into_iter()
        .filter(|name| known.own(name).unwrap().has(namespace, label))
        .collect()
}

#[test]
fn an_object_is_of_the_revision_that_it_its_namespace_or_the_default_names() {
    let mut known = known();
    assert_eq!(owners(&known, "shop", None), ["default"]);
    assert_eq!(owners(&known, "shop", Some("")), ["default"]);
    assert_eq!(owners(&known, "shop", Some("canary")), ["canary"]);
    assert_eq!(owners(&known, "shop", Some("next")), ["canary"]);
    assert_eq!(owners(&known, "shop", Some("prod")), [""; 0]);
    assert_eq!(owners(&known, "canaries", None), ["canary"]);
    assert_eq!(owners(&known, "canaries", Some("default")), ["default"]);

    assert_eq!(
        owners(&known, "", None),
        ["default", "canary"],
        "all revisions write the status of a GatewayClass"
    );
    assert_eq!(owners(&known, "", Some("canary")), ["canary"]);
    let other = |known: &Known| known.own("other").unwrap().has("shop", None);
    assert!(!other(&known));

    known.take(
        DefaultValidator,
        Event::Apply(object(
            DEFAULT_VALIDATOR,
            json!({ "istio.io/rev": "other" }),
        )),
    );

    assert!(other(&known));
}

#[test]
fn forbidden_kinds_do_not_block_and_failing_ones_do() {
    let mut known = Known::default();
    let failed = |code| {
        Error::WatchError(Box::new(Status {
            code,
            ..Status::default()
        }))
    };
    for source in [TagWebhooks, TagServices, DefaultValidator] {
        known.hear(source, Err(failed(403)));
    }
    known.hear(Namespaces, Err(failed(500)));
    assert_eq!(known.own("default"), None);
    known.hear(Namespaces, Err(failed(403)));
    assert_eq!(owners(&known, "shop", None), ["default"]);
}

#[tokio::test]
async fn no_object_is_written_before_its_revision_is_known() {
    let (tell, receiver) = watch::channel(None);
    let mut responsibility = Responsibility::Revision(receiver);
    assert!(!responsibility.has("shop", None) && Responsibility::All.has("shop", Some("canary")));
    tell.send_replace(known().own("default").map(Arc::new));
    responsibility.changed().await;
    assert!(responsibility.has("shop", None) && !responsibility.has("canaries", None));
}
