//! Certificates as text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Signs in one line of PEM.
const LINE: usize = 64;

/// A certificate (DER) in PEM, ended by a line break.
#[must_use]
pub fn encode(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = String::with_capacity(encoded.len() + encoded.len() / LINE + 64);
    text.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at_checked(LINE).unwrap_or((rest, ""));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::encode;

    #[test]
    fn what_is_written_reads_back_in_lines_of_64() {
        for length in [0, 1, 48, 49, 1000] {
            let der = vec![7; length];
            let text = encode(&der);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            assert_eq!(CertificateDer::from_pem_slice(text.as_bytes()).unwrap().as_ref(), der);
        }
    }
}
