//! The fields of a webhook configuration that are Navarch's to keep. All others stay as they are, known or not.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::bundle::{self, Grace};

/// How the names of webhooks end that inject.
const INJECTOR: &str = "sidecar-injector.istio.io";

/// How the names of webhooks end that only warn: where they cannot be asked, nothing is refused.
const ADVISER: &str = "warnings.navarch.io";

/// The kinds of webhook configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// Those that inject.
    Mutating,
    /// Those that validate.
    Validating,
}

impl HookKind {
    /// The kind as the API has it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }

    /// Whether a webhook of a configuration is Navarch's: of those that change objects only the ones that inject.
    fn owns(self, webhook: &Value) -> bool {
        let name = webhook.get("name").and_then(Value::as_str).unwrap_or_default();
        self == Self::Validating || name.ends_with(INJECTOR)
    }
}

/// The webhooks of a configuration.
fn webhooks(object: &DynamicObject) -> impl Iterator<Item = &Value> {
    object.data.get("webhooks").and_then(Value::as_array).into_iter().flatten()
}

/// The roots in a webhook, as PEM; empty where there is nothing readable.
fn found_bundle(webhook: &Value) -> String {
    let text = webhook.pointer("/clientConfig/caBundle").and_then(Value::as_str).unwrap_or_default();
    let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Whether all webhooks hold all of these roots.
pub(super) fn holds(kind: HookKind, object: &DynamicObject, roots: &str) -> bool {
    let wanted = bundle::certificates(roots);
    webhooks(object).filter(|webhook| kind.owns(webhook)).all(|webhook| {
        let found = found_bundle(webhook);
        let found = bundle::certificates(&found);
        wanted.iter().all(|root| found.contains(root))
    })
}

/// Has all webhooks hold these roots. Gives the moment at which roots of others are to go.
pub(super) fn set_bundle(
    kind: HookKind,
    object: &mut DynamicObject,
    roots: &Arc<str>,
    grace: &mut Grace,
    lasts: Duration,
) -> Option<Instant> {
    let list = object.data.get_mut("webhooks").and_then(Value::as_array_mut)?;
    let mut until: Option<Instant> = None;
    for webhook in list.iter_mut().filter(|webhook| kind.owns(webhook)) {
        let (wanted, next) = bundle::merge(&found_bundle(webhook), roots, grace, lasts, Instant::now());
        until = [until, next].into_iter().flatten().min();
        let encoded = Value::String(BASE64_STANDARD.encode(wanted));
        if let Some(config) = webhook.get_mut("clientConfig").and_then(Value::as_object_mut)
            && config.get("caBundle") != Some(&encoded)
        {
            config.insert("caBundle".to_owned(), encoded);
        }
    }
    until
}

/// Whether a webhook only warns.
fn only_warns(webhook: &Value) -> bool {
    webhook.get("name").and_then(Value::as_str).is_some_and(|name| name.ends_with(ADVISER))
}

/// Whether some webhook that may refuse lets objects through that it was not asked about.
pub(super) fn is_open(object: &DynamicObject) -> bool {
    let mut refusing = webhooks(object).filter(|webhook| !only_warns(webhook));
    refusing.any(|webhook| webhook.get("failurePolicy").is_some_and(|policy| policy != "Fail"))
}

/// Has all webhooks refuse what they cannot be asked about, but for those that only warn.
pub(super) fn close(object: &mut DynamicObject) {
    let all = object.data.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten();
    for webhook in all.filter(|webhook| !only_warns(webhook)) {
        if let Some(members) = webhook.as_object_mut() {
            members.insert("failurePolicy".to_owned(), json!("Fail"));
        }
    }
}
