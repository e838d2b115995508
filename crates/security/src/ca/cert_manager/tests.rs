//! Verdicts, names and issuers.

use serde_json::Value;

use super::*;

fn verdict(status: Value) -> Verdict {
    let object = json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "CertificateRequest",
        "metadata": {"name": "navarch-1"},
        "status": status,
    });
    Verdict::of(&serde_json::from_value(object).unwrap())
}

#[test]
fn a_denial_counts_before_a_certificate() {
    let certificate = STANDARD.encode("PEM");
    let ready = json!({"type": "Ready", "status": "True", "reason": "Issued"});
    let denied = json!({"type": "Denied", "status": "True", "reason": "policy.cert-manager.io", "message": "no"});
    let failed =
        json!({"type": "Ready", "status": "False", "reason": "Failed", "message": "no key"});
    let pending = json!({"type": "Ready", "status": "False", "reason": "Pending"});

    assert_eq!(verdict(json!({})), Verdict::Pending);
    assert_eq!(
        verdict(json!({"conditions": [pending], "certificate": certificate})),
        Verdict::Pending
    );
    assert_eq!(
        verdict(json!({"conditions": [ready], "certificate": certificate})),
        Verdict::Signed("PEM".to_owned())
    );
    assert_eq!(
        verdict(json!({"conditions": [ready, denied], "certificate": certificate})),
        Verdict::Denied("policy.cert-manager.io: no".to_owned())
    );
    assert_eq!(
        verdict(json!({"conditions": [failed]})),
        Verdict::Failed("Failed: no key".to_owned())
    );
}

#[test]
fn an_issuer_has_a_kind_and_a_name() {
    let parsed: IssuerReference = "ClusterIssuer/mesh".parse().unwrap();
    assert_eq!(
        (&*parsed.kind, &*parsed.group, &*parsed.name),
        ("ClusterIssuer", "cert-manager.io", "mesh")
    );
    let parsed: IssuerReference = "AWSPCAIssuer.awspca.cert-manager.io/mesh".parse().unwrap();
    assert_eq!(
        (&*parsed.kind, &*parsed.group),
        ("AWSPCAIssuer", "awspca.cert-manager.io")
    );
    for wrong in ["", "mesh", "/mesh", "Issuer/", "Issuer/../x", "Issuer./x"] {
        assert!(wrong.parse::<IssuerReference>().is_err(), "{wrong}");
    }
}

#[test]
fn names_are_random() {
    let name = new_name().unwrap();
    assert!(name.len() == PREFIX.len() + 32 && name != new_name().unwrap());
    assert!(navarch_kubernetes::object_name(&name).is_ok());
}
