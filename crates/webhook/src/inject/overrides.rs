//! The user's fields for containers that the injection also contains; the user's fields take
//! precedence.

use serde_json::{Value, json};

use super::error::InjectError;
use super::merge::merge;
use super::names::{INIT, INTERCEPTION_MODE, OVERRIDES, PROXY, STATUS, VALIDATION};
use super::pod::{self, List};
use super::strip::{Overrides, Status};
use super::{go_json, tidy};
use navarch_api::mesh::{InboundInterceptionMode, ProxyConfig};

/// The image name that selects the injection's image.
const AUTO_IMAGE: &str = "auto";

/// Merges the user's containers over injected containers of the same name, and records them in an
/// annotation, because a later injection does not find them in the pod.
///
/// Containers of an earlier injection are replaced, while the recorded fields of the user remain,
/// so that a further injection changes nothing (istiod drops the user's fields).
///
/// # Errors
/// When a container cannot be merged.
pub(super) fn reapply(
    merged: &mut Value,
    original: &Value,
    template: &Value,
    existing: &Overrides,
    status: Option<&Status>,
) -> Result<(), InjectError> {
    let mut applied = Overrides::default();

    for list in [List::Containers, List::Init] {
        for injected in pod::containers(template, list) {
            let name = pod::name(injected);
            let again =
                status.is_some_and(|status| status.names(list).iter().any(|other| other == name));
            let in_pod = match list {
                _ if again => None,
                List::Containers => pod::find(pod::containers(original, list), name),
                List::Init => pod::find_in_pod(original, name),
            };
            let Some(own) = pod::find(existing.list(list), name).or(in_pod) else {
                continue;
            };

            let mut own = own.clone();
            let fields = pod::as_map(&mut own);
            if fields.get("image").and_then(Value::as_str) == Some(AUTO_IMAGE) {
                fields.remove("image");
            }

            tidy::container(&mut own);
            merge(merged, json!({ "spec": { list.field(): [own.clone()] } }))?;
            applied.push(list, own);
        }
    }

    let first = pod::annotation(original, STATUS).is_none();
    if first && (!applied.containers.is_empty() || !applied.init_containers.is_empty()) {
        let mut noted = serde_json::Map::new();
        for list in [List::Containers, List::Init] {
            if !applied.list(list).is_empty() {
                noted.insert(
                    list.field().to_owned(),
                    Value::Array(applied.list(list).to_vec()),
                );
            }
        }
        let text = go_json::text(&Value::Object(noted));
        pod::annotations_mut(merged).insert(OVERRIDES.to_owned(), Value::String(text));
    }

    Ok(())
}

/// A number in the security context of a container.
fn id(container: &Value, field: &str) -> Option<i64> {
    container.get("securityContext")?.get(field)?.as_i64()
}

/// Adapts the init container to the user and group of the pod's own proxy container, because
/// capture identifies the proxy's traffic by its user.
pub(super) fn follow_user(
    merged: &mut Value,
    original: &Value,
    existing: &Overrides,
    status: Option<&Status>,
    proxy_config: &ProxyConfig,
) {
    let lists = [List::Containers, List::Init];
    let again = status.is_some_and(|status| {
        lists
            .iter()
            .any(|list| status.names(*list).iter().any(|name| name == PROXY))
    });

    let own = if again {
        lists
            .into_iter()
            .find_map(|list| pod::find(existing.list(list), PROXY))
    } else {
        pod::find_in_pod(original, PROXY)
    };

    let Some(own) = own else { return };
    let user = id(own, "runAsUser");
    let group = id(own, "runAsGroup");
    let init = [INIT, VALIDATION];
    let init = init
        .into_iter()
        .find(|name| pod::find(pod::containers(merged, List::Init), name).is_some());
    let Some(init) = init.filter(|_| user.is_some() || group.is_some()) else {
        return;
    };

    let tproxy = proxy_config.interception_mode == InboundInterceptionMode::Tproxy
        || pod::annotation(merged, INTERCEPTION_MODE) == Some("TPROXY");
    if tproxy
        && user.is_some()
        && let Some(proxy) = pod::find_in_pod_mut(merged, PROXY)
    {
        // The kernel allows only root to open TPROXY sockets.
        pod::member_map(pod::as_map(proxy), "securityContext")
            .insert("runAsUser".to_owned(), json!(0));
    }
    let containers = pod::containers_mut(merged, List::Init);
    let Some(container) = containers
        .into_iter()
        .flatten()
        .find(|container| pod::name(container) == init)
    else {
        return;
    };

    if !tproxy && init == VALIDATION {
        let context = pod::member_map(pod::as_map(container), "securityContext");
        context.extend(user.map(|user| ("runAsUser".to_owned(), json!(user))));
        context.extend(group.map(|group| ("runAsGroup".to_owned(), json!(group))));
    }

    let Some(user) = user.filter(|user| *user != 0) else {
        return;
    };

    let args = container
        .get_mut("args")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    if let Some(value) = args.skip_while(|arg| *arg != "-u").nth(1) {
        *value = Value::String(user.to_string());
    }
}
