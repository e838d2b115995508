//! The fields of a webhook configuration that Navarch maintains. All other fields keep their
//! values.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::bundle::{self, Grace};
use navarch_base::base64_text;

/// Suffix of the names of webhooks that inject.
const INJECTOR: &str = "sidecar-injector.istio.io";

/// Suffix of the names of webhooks that only warn: if they cannot be called, objects are admitted.
const WARNING_WEBHOOK_SUFFIX: &str = "warnings.navarch.io";

/// The kinds of webhook configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// Configurations of webhooks that inject.
    Mutating,
    /// Configurations of webhooks that validate.
    Validating,
}

impl HookKind {
    /// The name of the kind in the Kubernetes API.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }

    /// Whether Navarch maintains a webhook of a configuration: each validating one, and mutating
    /// ones that inject.
    fn owns(self, webhook: &Value) -> bool {
        let name = webhook
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        self == Self::Validating || name.ends_with(INJECTOR)
    }
}

/// The webhooks of a configuration.
fn webhooks(object: &DynamicObject) -> impl Iterator<Item = &Value> {
    object
        .data
        .get("webhooks")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The roots in a webhook, as PEM; empty if `caBundle` is missing or invalid.
fn found_bundle(webhook: &Value) -> String {
    let text = webhook
        .pointer("/clientConfig/caBundle")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let bytes = base64_text::decode(text).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Whether all maintained webhooks contain all of these roots.
pub(super) fn contains_roots(kind: HookKind, object: &DynamicObject, roots: &str) -> bool {
    let wanted = bundle::certificates(roots);
    webhooks(object)
        .filter(|webhook| kind.owns(webhook))
        .all(|webhook| {
            let found = found_bundle(webhook);
            let found = bundle::certificates(&found);
            wanted.iter().all(|root| found.contains(root))
        })
}

/// Adds these roots to all maintained webhooks. Returns the time at which the next foreign root
/// expires.
pub(super) fn set_bundle(
    kind: HookKind,
    object: &mut DynamicObject,
    roots: &Arc<str>,
    grace: &mut Grace,
    lasts: Duration,
) -> Option<Instant> {
    let list = object
        .data
        .get_mut("webhooks")
        .and_then(Value::as_array_mut)?;
    let mut until: Option<Instant> = None;

    for webhook in list.iter_mut().filter(|webhook| kind.owns(webhook)) {
        let (wanted, next) =
            bundle::merge(&found_bundle(webhook), roots, grace, lasts, Instant::now());
        until = [until, next].into_iter().flatten().min();
        let encoded = Value::String(BASE64_STANDARD.encode(wanted));
        if let Some(config) = webhook
            .get_mut("clientConfig")
            .and_then(Value::as_object_mut)
            && config.get("caBundle") != Some(&encoded)
        {
            config.insert("caBundle".to_owned(), encoded);
        }
    }

    until
}

fn only_warns(webhook: &Value) -> bool {
    webhook
        .get("name")
        .and_then(Value::as_str)
        .is_some_and(|name| name.ends_with(WARNING_WEBHOOK_SUFFIX))
}

/// Whether a webhook that may reject objects does not fail closed.
pub(super) fn is_open(object: &DynamicObject) -> bool {
    let mut rejecting = webhooks(object).filter(|webhook| !only_warns(webhook));
    rejecting.any(|webhook| {
        webhook
            .get("failurePolicy")
            .is_some_and(|policy| policy != "Fail")
    })
}

/// Makes all webhooks fail closed, except those that only warn.
pub(super) fn close(object: &mut DynamicObject) {
    let all = object
        .data
        .get_mut("webhooks")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for webhook in all.filter(|webhook| !only_warns(webhook)) {
        if let Some(members) = webhook.as_object_mut() {
            members.insert("failurePolicy".to_owned(), json!("Fail"));
        }
    }
}
