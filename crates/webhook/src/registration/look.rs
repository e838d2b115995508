//! Lists the webhook configurations of a revision, for diagnostics.

use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, Client};

use super::{HookKind, REVISION, hooks, resource};

/// The webhook configurations of a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundWebhooks {
    /// The names of all configurations.
    pub all: Vec<String>,
    /// The names of configurations with a webhook that lacks a root.
    pub without_roots: Vec<String>,
}

/// The configurations of a kind, and those that lack some of these roots (PEM).
///
/// # Errors
/// If the request to the API server fails.
pub async fn look(
    client: &Client,
    kind: HookKind,
    revision: &str,
    roots: &str,
) -> kube::Result<FoundWebhooks> {
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource(kind));
    let found = api
        .list(&ListParams::default().labels(&format!("{REVISION}={revision}")))
        .await?;
    let mut seen = FoundWebhooks::default();
    for object in found {
        let name = object.metadata.name.clone().unwrap_or_default();
        if !hooks::contains_roots(kind, &object, roots) {
            seen.without_roots.push(name.clone());
        }
        seen.all.push(name);
    }
    Ok(seen)
}
