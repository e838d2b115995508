//! `/debug/view/resources`: the resources of one proxy by name, and one resource as text.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::rows::{Rows, fits};
use crate::admin::reply::{self, Parameters};
use crate::admin::state::AdminState;
use crate::admin::{config_dump, proxies};
use navarch_push::resource::{Resource, ResourceType};
use navarch_security::rules::Visibility;
use navarch_xds::connections::ConnectionInfo;

/// The resources of the `type`, or of all types, that match `filter`; with `name`, the complete
/// resource of this name.
pub(in crate::admin) async fn resources(
    State(state): State<AdminState>,
    Extension(visibility): Extension<Visibility>,
    parameters: Parameters,
) -> Response {
    let info = match proxies::named(&state, &visibility, &parameters) {
        Ok(info) => info,
        Err(missing) => return missing.into_response(),
    };
    let text = parameters
        .get("type")
        .map(String::as_str)
        .unwrap_or_default();
    let types = match config_dump::resource_types(text) {
        Ok(types) => types,
        Err(unknown) => {
            return (
                StatusCode::BAD_REQUEST,
                format!("unknown type {unknown:?}\n"),
            )
                .into_response();
        }
    };

    match (parameters.get("name"), types.as_slice()) {
        (Some(name), [resource_type]) => whole(&info, *resource_type, name, &parameters),
        (Some(_), _) => {
            (StatusCode::BAD_REQUEST, "name requires exactly one type\n").into_response()
        }
        (None, _) => list(&info, &types, &parameters),
    }
}

/// Names, versions and sizes.
fn list(info: &ConnectionInfo, requested: &[ResourceType], parameters: &Parameters) -> Response {
    let count_of = |resource_type: ResourceType| {
        config_dump::sent(info, resource_type).map_or(0, |all| all.resources.len())
    };
    let types: Vec<Value> = info
        .types
        .iter()
        .map(|watch| {
            let resource_type = watch.resource_type;
            json!({
                "type": resource_type.short_name(),
                "resources": count_of(resource_type),
            })
        })
        .collect();
    let is_chosen =
        |resource_type: ResourceType| requested.is_empty() || requested.contains(&resource_type);

    let chosen = || {
        let watches = info
            .types
            .iter()
            .filter(|watch| is_chosen(watch.resource_type));
        let all = watches
            .filter_map(|watch| watch.resources.as_ref())
            .flat_map(|all| &all.resources);
        all.filter(|resource| fits(parameters, &[resource.name.as_str()]))
    };

    let rows = Rows::from_parameters(parameters);
    let row = |resource: &std::sync::Arc<Resource>| {
        json!({
            "type": resource.resource_type.short_name(), "name": resource.name.to_string(),
            "version": resource.version.to_string(), "bytes": resource.body.len(),
        })
    };

    let shown: Vec<Value> = rows.of(chosen()).into_iter().map(row).collect();
    let mut answer = rows.answer(chosen().count(), &shown);
    if let Some(answer) = answer.as_object_mut() {
        answer.insert("types".to_owned(), Value::Array(types));
        answer.insert("proxy".to_owned(), json!(&*info.proxy.name));
    }

    reply::json(parameters, &answer)
}

/// One resource, without secrets.
fn whole(
    info: &ConnectionInfo,
    resource_type: ResourceType,
    name: &str,
    parameters: &Parameters,
) -> Response {
    let all = config_dump::sent(info, resource_type).map(|all| &all.resources);
    let at = all.and_then(|all| {
        all.iter()
            .position(|resource| resource.name.as_str() == name)
    });
    let found = at.and_then(|at| {
        config_dump::resources(info, resource_type)
            .into_iter()
            .nth(at)
    });
    let Some(found) = found else {
        return (
            StatusCode::NOT_FOUND,
            format!("{} has no resource {name:?}\n", info.id),
        )
            .into_response();
    };

    match config_dump::json(&[found]) {
        Ok(value) => reply::json(
            parameters,
            value.pointer("/configs/0").unwrap_or(&Value::Null),
        ),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
