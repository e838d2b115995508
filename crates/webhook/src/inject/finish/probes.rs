//! Redirects probes and hooks to the agent, which the kubelet reaches without mutual TLS.

use serde_json::{Map, Value, json};

use super::super::go_json;
use super::super::names::{PROXY, REWRITE_PROBES, STATUS, STATUS_PORT};
use super::super::pod::{self, List};
use navarch_base::go_text::parse_bool;

/// The variable with the application's own probes, which the agent reads.
pub(super) const PROBERS: &str = "ISTIO_KUBE_APP_PROBERS";

/// The probes of a container, and the last segment of their path at the agent.
const PROBES: [(&str, &str); 3] = [
    ("readinessProbe", "readyz"),
    ("livenessProbe", "livez"),
    ("startupProbe", "startupz"),
];

/// The hooks of a container, and the last segment of their path at the agent.
const HOOKS: [(&str, &str); 2] = [("preStop", "prestopz"), ("postStart", "poststartz")];

/// Redirects the probes and hooks of a pod to the agent, unless the pod's annotation, or else the
/// values, disable it.
pub(super) fn rewrite(pod: &mut Value, by_default: bool, agent_port: i32) {
    if pod::find_in_pod(pod, PROXY).is_none() {
        return;
    }

    let value = pod::annotation(pod, REWRITE_PROBES).and_then(parse_bool);
    if !value.unwrap_or(by_default) {
        return;
    }

    let probers = probers(pod, agent_port);
    if !probers.is_empty() {
        let again = pod::annotation(pod, STATUS).is_some();
        pass_to_agent(pod, probers, again);
    }

    let port = pod::annotation(pod, STATUS_PORT)
        .map(|text| text.trim().parse().unwrap_or(0))
        .unwrap_or(agent_port);

    for list in [List::Containers, List::Init] {
        for container in pod::containers_mut(pod, list).into_iter().flatten() {
            if pod::name(container) != PROXY {
                redirect(container, port);
            }
        }
    }
}

/// The application's own probes and hooks, by their path at the agent.
fn probers(pod: &Value, agent_port: i32) -> Map<String, Value> {
    let mut found = Map::new();

    for list in [List::Init, List::Containers] {
        for container in pod::containers(pod, list)
            .iter()
            .filter(|container| pod::name(container) != PROXY)
        {
            let name = pod::name(container);
            let mut tell = |path: String, probe: Option<&Value>, actions: &[&str]| {
                if let Some(prober) =
                    probe.and_then(|probe| prober(container, probe, actions, &path, agent_port))
                {
                    found.insert(path, prober);
                }
            };
            for (field, path) in PROBES {
                tell(
                    format!("/app-health/{name}/{path}"),
                    container.get(field),
                    &["httpGet", "tcpSocket", "grpc"],
                );
            }

            for (field, path) in HOOKS {
                let hook = container
                    .get("lifecycle")
                    .and_then(|lifecycle| lifecycle.get(field));
                tell(
                    format!("/app-lifecycle/{name}/{path}"),
                    hook,
                    &["httpGet", "tcpSocket"],
                );
            }
        }
    }

    found
}

/// The action of one probe or hook, with a numeric port. `None` if the agent does not support the
/// action, or if port or path already point to the agent.
fn prober(
    container: &Value,
    probe: &Value,
    actions: &[&str],
    path: &str,
    agent_port: i32,
) -> Option<Value> {
    let (kind, action) = actions
        .iter()
        .find_map(|kind| Some((*kind, probe.get(kind).filter(|action| action.is_object())?)))?;
    let mut action = action.clone();
    if action.get("path").and_then(Value::as_str) == Some(path) {
        return None;
    }

    if kind == "grpc" {
        // istiod writes null if no service is named.
        pod::as_map(&mut action)
            .entry("service")
            .or_insert(Value::Null);
    } else {
        let number = match action.get("port") {
            Some(Value::String(name)) => Some(port_of(container, name)?),
            Some(port) if port.as_i64() == Some(i64::from(agent_port)) => return None,
            Some(_) | None => None,
        };
        if let Some(number) = number {
            pod::as_map(&mut action).insert("port".to_owned(), number);
        }
    }

    let mut prober = Map::from_iter([(kind.to_owned(), action)]);
    if let Some(seconds) = probe
        .get("timeoutSeconds")
        .filter(|seconds| seconds.as_i64() != Some(0))
    {
        prober.insert("timeoutSeconds".to_owned(), seconds.clone());
    }
    Some(Value::Object(prober))
}

/// The number of a container's named port; the last port with the name applies.
fn port_of(container: &Value, name: &str) -> Option<Value> {
    let ports = container.get("ports")?.as_array()?;
    let named = ports
        .iter()
        .rev()
        .find(|port| pod::name(port) == name && !name.is_empty())?;
    named.get("containerPort").cloned()
}

/// Passes the application's probes to the agent. Entries of an earlier injection remain, because
/// the pod's probes already point to the agent.
fn pass_to_agent(pod: &mut Value, mut probers: Map<String, Value>, again: bool) {
    let Some(proxy) = pod::find_in_pod_mut(pod, PROXY) else {
        return;
    };

    let env = pod::as_map(proxy)
        .entry("env")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Some(env) = env.as_array_mut() else {
        return;
    };

    let existing = env
        .iter_mut()
        .find(|variable| again && pod::name(variable) == PROBERS);
    let Some(existing) = existing else {
        env.push(json!({ "name": PROBERS, "value": go_json::text(&Value::Object(probers)) }));
        return;
    };

    let before = existing
        .get("value")
        .and_then(Value::as_str)
        .and_then(|text| serde_json::from_str(text).ok());
    if let Some(Value::Object(before)) = before {
        probers.extend(before);
        *existing = json!({ "name": PROBERS, "value": go_json::text(&Value::Object(probers)) });
    }
}

/// Redirects the probes and hooks of a container to the agent.
fn redirect(container: &mut Value, port: i32) {
    let name = pod::name(container).to_owned();

    for (field, path) in PROBES {
        if let Some(probe) = container.get_mut(field) {
            redirect_one(
                probe,
                &["httpGet", "tcpSocket", "grpc"],
                &format!("/app-health/{name}/{path}"),
                port,
            );
        }
    }

    for (field, path) in HOOKS {
        if let Some(hook) = container
            .get_mut("lifecycle")
            .and_then(|lifecycle| lifecycle.get_mut(field))
        {
            redirect_one(
                hook,
                &["httpGet", "tcpSocket"],
                &format!("/app-lifecycle/{name}/{path}"),
                port,
            );
        }
    }
}

/// Redirects one probe or hook to the agent, if the agent supports the action. The kubelet always
/// uses plain HTTP to the agent, and the agent uses the probe's scheme to the application.
fn redirect_one(probe: &mut Value, actions: &[&str], path: &str, port: i32) {
    let Value::Object(probe) = probe else { return };
    let is_set = |action: &&&str| probe.get(**action).is_some_and(Value::is_object);
    let Some(kind) = actions.iter().find(is_set) else {
        return;
    };
    let mut action = match (*kind, probe.remove(*kind)) {
        ("httpGet", Some(Value::Object(action))) => action,
        (_, _) => Map::new(),
    };
    if action.get("scheme").and_then(Value::as_str) == Some("HTTPS") {
        action.insert("scheme".to_owned(), json!("HTTP"));
    }
    action.insert("path".to_owned(), json!(path));
    action.insert("port".to_owned(), json!(port));
    probe.insert("httpGet".to_owned(), Value::Object(action));
}
