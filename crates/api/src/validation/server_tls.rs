//! Rules for TLS settings of a server.

use std::collections::BTreeSet;

use super::Verdict;
use super::path::Path;
use crate::istio::{ServerTlsMode, ServerTlsSettings, TlsProtocol};

/// The cipher suites of Envoy's TLS library, without those with pre-shared keys.
const CIPHER_SUITES: [&str; 15] = [
    "AES128-GCM-SHA256",
    "AES128-SHA",
    "AES256-GCM-SHA384",
    "AES256-SHA",
    "DES-CBC3-SHA",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-SHA",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

/// Maximum length of all ALPN protocols with commas between them, in Envoy.
const MAX_ALPN_LEN: usize = 65_534;

/// Validates TLS settings of a port.
pub(super) fn server_tls(verdict: &mut Verdict, at: &Path<'_>, tls: &ServerTlsSettings) {
    ciphers(verdict, at, tls);
    alpn_protocols(verdict, at, tls);

    match tls.mode {
        ServerTlsMode::IstioMutual => mesh_certificates(verdict, at, tls),
        ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough => {
            for field in certificate_fields(tls) {
                verdict.warn(
                    &at.field(field),
                    format!(
                        "has no effect because mode {} does not terminate TLS",
                        tls.mode
                    ),
                );
            }

            one_source(verdict, at, tls);

            if !tls.ca_crl.is_empty() && !tls.credential_name.is_empty() {
                verdict.error(
                    &at.field("caCrl"),
                    "is set together with credentialName; put the list into the secret",
                );
            }
        }
        ServerTlsMode::Simple | ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual => {
            one_source(verdict, at, tls);
            if tls.credential_name.is_empty() && tls.credential_names.is_empty() {
                certificate_files(verdict, at, tls);
            }
        }
    }
}

/// Warns of cipher suites that have no effect.
fn ciphers(verdict: &mut Verdict, at: &Path<'_>, tls: &ServerTlsSettings) {
    let old = matches!(
        tls.min_protocol_version,
        TlsProtocol::Tlsv1_0 | TlsProtocol::Tlsv1_1
    );
    if old && tls.cipher_suites.is_empty() {
        verdict.warn(
            &at.field("minProtocolVersion"),
            format!(
                "{} has no cipher suite among the defaults; set cipherSuites",
                tls.min_protocol_version
            ),
        );
    }

    let mut seen = BTreeSet::new();
    let list = at.field("cipherSuites");

    for (index, suite) in tls.cipher_suites.iter().enumerate() {
        if !is_cipher_suite(suite) {
            verdict.warn(
                &list.item(index),
                format!("{suite:?} is not a cipher suite and is ignored"),
            );
        } else if !seen.insert(suite.as_str()) {
            verdict.warn(&list.item(index), format!("{suite:?} is listed twice"));
        }
    }
}

/// Rejects ALPN protocols that Envoy does not accept, and warns where none are offered.
fn alpn_protocols(verdict: &mut Verdict, at: &Path<'_>, tls: &ServerTlsSettings) {
    let list = &at.field("alpnProtocols");
    let is_forwarded = matches!(
        tls.mode,
        ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough
    );
    if is_forwarded && !tls.alpn_protocols.is_empty() {
        verdict.warn(
            list,
            format!(
                "has no effect because mode {} does not terminate TLS",
                tls.mode
            ),
        );
    }

    if tls.alpn_protocols.join(",").len() > MAX_ALPN_LEN {
        verdict.error(
            list,
            format!(
                "is too long; Envoy accepts {MAX_ALPN_LEN} bytes, with a separator between two"
            ),
        );
    }

    for (index, protocol) in tls.alpn_protocols.iter().enumerate() {
        if !is_alpn_protocol(protocol) {
            verdict.error(
                &list.item(index),
                format!("{protocol:?} is not a protocol; write 1 to 255 bytes without a comma"),
            );
        }
    }
}

/// Whether an ALPN protocol has the length that TLS allows (RFC 7301, section 3.1), and no comma, by
/// which Envoy separates protocols.
#[must_use]
pub fn is_alpn_protocol(text: &str) -> bool {
    (1..=255).contains(&text.len()) && !text.contains(',')
}

/// Whether a list of cipher suites may contain the text; expressions with operators are not
/// checked.
#[must_use]
pub fn is_cipher_suite(text: &str) -> bool {
    let starts_with_name = text.chars().next().is_some_and(char::is_alphanumeric);
    text == "ALL" || !starts_with_name || CIPHER_SUITES.contains(&text)
}

/// The fields for certificates or keys that are set.
fn certificate_fields(tls: &ServerTlsSettings) -> impl Iterator<Item = &'static str> {
    [
        ("serverCertificate", !tls.server_certificate.is_empty()),
        ("privateKey", !tls.private_key.is_empty()),
        ("caCertificates", !tls.ca_certificates.is_empty()),
        ("caCrl", !tls.ca_crl.is_empty()),
        ("tlsCertificates", !tls.tls_certificates.is_empty()),
        ("credentialName", !tls.credential_name.is_empty()),
        ("credentialNames", !tls.credential_names.is_empty()),
    ]
    .into_iter()
    .filter_map(|(field, set)| set.then_some(field))
}

/// Rejects certificates in addition to those of the mesh.
fn mesh_certificates(verdict: &mut Verdict, at: &Path<'_>, tls: &ServerTlsSettings) {
    for field in certificate_fields(tls).filter(|field| *field != "caCrl") {
        verdict.error(
            &at.field(field),
            "is set, but mode ISTIO_MUTUAL uses the certificates of the mesh; remove it",
        );
    }
}

/// Rejects more than one source of certificates.
fn one_source(verdict: &mut Verdict, at: &Path<'_>, tls: &ServerTlsSettings) {
    let sources = [
        !tls.server_certificate.is_empty() && !tls.private_key.is_empty(),
        !tls.credential_name.is_empty(),
        !tls.credential_names.is_empty(),
        !tls.tls_certificates.is_empty(),
    ];
    if sources.into_iter().filter(|set| *set).count() > 1 {
        verdict.error(
            at,
            "has more than one source of certificates; keep one of credentialName, credentialNames, \
             serverCertificate with privateKey, and tlsCertificates",
        );
    }
}

/// Validates certificates that are files.
fn certificate_files(verdict: &mut Verdict, at: &Path<'_>, tls: &ServerTlsSettings) {
    let mode = tls.mode;
    if mode != ServerTlsMode::Simple && tls.ca_certificates.is_empty() {
        verdict.error(
            &at.field("caCertificates"),
            format!("is missing; mode {mode} requires it to verify clients"),
        );
    }

    let list = at.field("tlsCertificates");

    if tls.tls_certificates.len() > 2 {
        verdict.warn(
            &list,
            "holds more than two certificates; one for RSA and one for ECDSA are used",
        );
    }

    let missing = format!("is missing; mode {mode} needs it, or credentialName");

    if tls.tls_certificates.is_empty() {
        for (field, file) in [
            ("serverCertificate", &tls.server_certificate),
            ("privateKey", &tls.private_key),
        ] {
            if file.is_empty() {
                verdict.error(&at.field(field), missing.as_str());
            }
        }
    }

    for (index, pair) in tls.tls_certificates.iter().enumerate() {
        let at = &list.item(index);
        for (field, file) in [
            ("serverCertificate", &pair.server_certificate),
            ("privateKey", &pair.private_key),
        ] {
            if file.is_empty() {
                verdict.error(&at.field(field), missing.as_str());
            }
        }
    }

    if !tls.ca_crl.is_empty() && mode == ServerTlsMode::Simple {
        verdict.error(
            &at.field("caCrl"),
            "is set, but mode SIMPLE does not verify clients; remove it, or use MUTUAL",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpn_protocols_are_short_and_need_tls_that_ends_here() {
        let long = "a".repeat(256);
        for (mode, protocol, errors, warnings) in [
            (ServerTlsMode::Simple, "http/1.1", 0, 0),
            (ServerTlsMode::IstioMutual, "h2", 0, 0),
            (ServerTlsMode::Simple, "", 1, 0),
            (ServerTlsMode::Simple, "h2,http/1.1", 1, 0),
            (ServerTlsMode::Simple, long.as_str(), 1, 0),
            (ServerTlsMode::Passthrough, "h2", 0, 1),
        ] {
            let tls = ServerTlsSettings {
                mode,
                alpn_protocols: vec![protocol.to_owned()],
                ..ServerTlsSettings::default()
            };
            let mut verdict = Verdict::default();
            alpn_protocols(&mut verdict, &Path::root("tls"), &tls);

            let found = (verdict.errors.len(), verdict.warnings.len());
            assert_eq!(found, (errors, warnings), "{mode} {protocol:?}");
            for problem in verdict.errors {
                assert_eq!(problem.field, "tls.alpnProtocols[0]");
            }
        }

        // 256 of them have 65,535 bytes, with their separators.
        for (count, errors) in [(255, 0), (256, 1)] {
            let tls = ServerTlsSettings {
                mode: ServerTlsMode::Simple,
                alpn_protocols: vec!["a".repeat(255); count],
                ..ServerTlsSettings::default()
            };
            let mut verdict = Verdict::default();
            alpn_protocols(&mut verdict, &Path::root("tls"), &tls);
            assert_eq!(verdict.errors.len(), errors, "{count}");
        }
    }
}
