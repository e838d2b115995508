//! The status of a CertificateRequest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::core::DynamicObject;
use serde_json::Value;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is not decided.
    Pending,
    /// An approver has denied it, or the issuer finds it invalid; the reason.
    Denied(String),
    /// The issuer has failed, and does not try again; the reason.
    Failed(String),
    /// The issuer has signed; the certificate and its intermediates in PEM.
    Signed(String),
}

impl Verdict {
    /// The verdict in an object's status. Conditions that deny count before a certificate.
    pub(super) fn of(object: &DynamicObject) -> Self {
        let status = object.data.get("status").unwrap_or(&Value::Null);
        let conditions = status.get("conditions").and_then(Value::as_array);
        let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
        let text = |condition: &Value, name: &str| {
            let text = condition.get(name).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let find = |kind: &str, is: &str| {
            conditions
                .iter()
                .find(|one| text(one, "type") == kind && text(one, "status") == is)
        };
        let reason = |condition: &Value| {
            format!(
                "{}: {}",
                text(condition, "reason"),
                text(condition, "message")
            )
        };

        for kind in ["Denied", "InvalidRequest"] {
            if let Some(condition) = find(kind, "True") {
                return Self::Denied(reason(condition));
            }
        }

        if let Some(condition) = find("Ready", "False")
            && matches!(text(condition, "reason").as_str(), "Failed" | "Denied")
        {
            return Self::Failed(reason(condition));
        }

        let certificate = status.get("certificate").and_then(Value::as_str);
        let Some(certificate) = certificate.filter(|text| !text.is_empty()) else {
            return Self::Pending;
        };
        if find("Ready", "True").is_none() {
            return Self::Pending;
        }
        let decoded = STANDARD.decode(certificate).ok();
        match decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(chain) => Self::Signed(chain),
            None => Self::Failed("the certificate is unreadable".to_owned()),
        }
    }
}
