//! Rules for TLS settings of a client.

use super::Verdict;
use super::path::Path;
use crate::istio::{ClientTlsMode, ClientTlsSettings};

/// Validates TLS settings for a host; `namespace` is that of the object.
pub(super) fn client_tls(
    verdict: &mut Verdict,
    at: &Path<'_>,
    tls: Option<&ClientTlsSettings>,
    namespace: &str,
) {
    let Some(tls) = tls else {
        return;
    };

    for (field, credential) in [
        ("credentialName", &tls.credential_name),
        ("caCertCredentialName", &tls.ca_cert_credential_name),
    ] {
        verdict.check(&at.field(field), config_map(credential, namespace));
    }
    if tls.insecure_skip_verify == Some(true) {
        skipped_checks(verdict, at, tls);
    }

    let fetched = !tls.credential_name.is_empty();

    match tls.mode {
        ClientTlsMode::Simple | ClientTlsMode::Mutual if fetched => {
            let files = [
                ("clientCertificate", &tls.client_certificate),
                ("privateKey", &tls.private_key),
                ("caCertificates", &tls.ca_certificates),
                ("caCrl", &tls.ca_crl),
            ];
            for (field, _) in files.into_iter().filter(|(_, file)| !file.is_empty()) {
                verdict.error(
                    &at.field(field),
                    "is set together with credentialName; keep one of them",
                );
            }
        }
        ClientTlsMode::Mutual => {
            for (field, file) in [
                ("clientCertificate", &tls.client_certificate),
                ("privateKey", &tls.private_key),
            ] {
                if file.is_empty() {
                    verdict.error(
                        &at.field(field),
                        "is missing; mode MUTUAL needs it, or credentialName",
                    );
                }
            }
        }
        ClientTlsMode::Disable | ClientTlsMode::IstioMutual
            if !tls.ca_cert_credential_name.is_empty() =>
        {
            verdict.warn(
                &at.field("caCertCredentialName"),
                format!("has no effect in mode {}; use SIMPLE or MUTUAL", tls.mode),
            );
        }
        ClientTlsMode::Disable | ClientTlsMode::Simple | ClientTlsMode::IstioMutual => {}
    }
}

/// Rejects settings for checks that are skipped.
fn skipped_checks(verdict: &mut Verdict, at: &Path<'_>, tls: &ClientTlsSettings) {
    let counted = match tls.mode {
        ClientTlsMode::Simple => true,
        ClientTlsMode::Mutual => false,
        ClientTlsMode::Disable | ClientTlsMode::IstioMutual => return,
    };

    let checks = [
        ("caCertificates", !tls.ca_certificates.is_empty()),
        // With MUTUAL the secret may contain only the client certificate.
        ("credentialName", counted && !tls.credential_name.is_empty()),
        (
            "caCertCredentialName",
            !tls.ca_cert_credential_name.is_empty(),
        ),
        ("subjectAltNames", !tls.subject_alt_names.is_empty()),
    ];
    for (field, _) in checks.into_iter().filter(|(_, set)| *set) {
        verdict.error(
            &at.field(field),
            "has no effect because insecureSkipVerify is true; remove one of them",
        );
    }
}

/// Validates a credential in a ConfigMap, which must be in the object's own namespace.
fn config_map(credential: &str, namespace: &str) -> Result<(), String> {
    let Some(name) = credential.strip_prefix("configmap://") else {
        return Ok(());
    };
    let mut parts = name.split('/');
    match (parts.next(), parts.next()) {
        (Some(found), Some(name))
            if !name.is_empty() && !found.is_empty() && found == namespace =>
        {
            Ok(())
        }
        _ => Err(format!(
            "{credential:?} is not usable; write configmap://{namespace}/ and the name of a ConfigMap"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The problems of settings that are written as JSON: errors and warnings.
    fn problems(settings: serde_json::Value) -> [Vec<String>; 2] {
        let tls: ClientTlsSettings = serde_json::from_value(settings).unwrap();
        let mut verdict = Verdict::default();
        client_tls(&mut verdict, &Path::root("tls"), Some(&tls), "shop");
        [verdict.errors, verdict.warnings]
            .map(|problems| problems.into_iter().map(|problem| problem.field).collect())
    }

    #[test]
    fn ca_certificates_may_have_a_credential_of_their_own() {
        let field = vec!["tls.caCertCredentialName".to_owned()];
        let none = Vec::new();
        for (mode, more, errors, warnings) in [
            ("SIMPLE", json!({}), &none, &none),
            ("SIMPLE", json!({ "credentialName": "web" }), &none, &none),
            (
                "SIMPLE",
                json!({ "caCertificates": "/ca.pem" }),
                &none,
                &none,
            ),
            (
                "MUTUAL",
                json!({ "clientCertificate": "/c", "privateKey": "/k" }),
                &none,
                &none,
            ),
            (
                "SIMPLE",
                json!({ "insecureSkipVerify": true }),
                &field,
                &none,
            ),
            (
                "MUTUAL",
                json!({ "credentialName": "web", "insecureSkipVerify": true }),
                &field,
                &none,
            ),
            ("ISTIO_MUTUAL", json!({}), &none, &field),
            ("DISABLE", json!({}), &none, &field),
        ] {
            let mut settings = json!({ "mode": mode, "caCertCredentialName": "ca" });
            settings
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let found = problems(settings.clone());
            assert_eq!(found, [errors.clone(), warnings.clone()], "{settings}");
        }

        for (name, errors) in [
            ("configmap://shop/ca", none),
            ("configmap://bank/ca", field),
        ] {
            let settings = json!({ "mode": "SIMPLE", "caCertCredentialName": name });
            assert_eq!(problems(settings), [errors, Vec::new()], "{name}");
        }
    }
}
