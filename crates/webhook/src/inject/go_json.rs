//! JSON text in pods, byte for byte as Go's `encoding/json` writes Kubernetes' types.
//!
//! Agents and users compare such text. Fields are in the order of Go's structs, and one table
//! covers all types in containers; map keys, which are not in the table, follow in byte order.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use navarch_base::go_text::write_json_string;

/// The fields of containers and nested types, in an order that agrees with all of Go's structs.
#[rustfmt::skip]
const ORDER: [&str; 84] = [
    "containers", "initContainers", "prefix", "name", "image", "command", "args", "workingDir", "ports", "envFrom",
    "env", "resources", "resizePolicy", "resourceName", "restartPolicy", "restartPolicyRules", "action", "exitCodes",
    "operator", "values", "hostPort", "containerPort", "protocol", "hostIP", "value", "valueFrom", "fieldRef",
    "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef", "apiVersion", "fieldPath", "containerName",
    "resource", "divisor", "volumeName", "path", "key", "configMapRef", "secretRef", "optional", "limits", "requests",
    "claims", "readOnly", "recursiveReadOnly", "mountPath", "subPath", "mountPropagation", "subPathExpr", "devicePath",
    "volumeMounts", "volumeDevices", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "postStart",
    "preStop", "stopSignal", "exec", "httpGet", "tcpSocket", "grpc", "sleep", "initialDelaySeconds", "timeoutSeconds",
    "periodSeconds", "successThreshold", "failureThreshold", "terminationGracePeriodSeconds", "port", "host", "scheme",
    "httpHeaders", "service", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy",
    "securityContext", "stdin", "stdinOnce", "tty",
];

/// The fields of security contexts, in an order that agrees with Go's structs.
#[rustfmt::skip]
const SECURITY_ORDER: [&str; 19] = [
    "capabilities", "add", "drop", "privileged", "seLinuxOptions", "user", "role", "type", "level", "windowsOptions",
    "runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation", "procMount",
    "seccompProfile", "localhostProfile", "appArmorProfile",
];

pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

/// Appends the JSON of a value.
fn write(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Value::String(value) => write_json_string(out, value),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => write_map(out, fields),
    }
}

/// Appends the JSON of an object.
fn write_map(out: &mut String, fields: &Map<String, Value>) {
    let mut ordered: Vec<_> = fields.iter().collect();
    ordered.sort_by_key(|(name, _)| rank(name));
    out.push('{');
    for (at, (name, value)) in ordered.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_json_string(out, name);
        out.push(':');
        write(out, value);
    }
    out.push('}');
}

/// The rank of a field; fields of equal rank remain sorted by name.
fn rank(field: &str) -> usize {
    let among = |order: &[&str]| order.iter().position(|name| *name == field);
    among(&ORDER)
        .or_else(|| among(&SECURITY_ORDER).map(|at| at + ORDER.len()))
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_has_gos_field_order_and_html_escaping() {
        let container = json!({
            "resources": {}, "env": [{"value": "<b>", "name": "A"}], "name": "web",
            "ports": [{"protocol": "TCP", "containerPort": 80, "name": "http"}],
            "securityContext": {"runAsUser": 1, "capabilities": {"drop": ["ALL"], "add": ["X"]}}
        });
        let expected = concat!(
            r#"{"name":"web","ports":[{"name":"http","containerPort":80,"protocol":"TCP"}],"#,
            r#""env":[{"name":"A","value":"\u003cb\u003e"}],"resources":{},"#,
            r#""securityContext":{"capabilities":{"add":["X"],"drop":["ALL"]},"runAsUser":1}}"#
        );
        assert_eq!(text(&container), expected);
    }
}
