//! Compliance policies for TLS (`COMPLIANCE_POLICY`), which override other settings.

use navarch_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::{
    CompliancePolicy as Native, TlsProtocol,
};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, TlsParameters,
};

use navarch_base::compliance::CompliancePolicy;

/// The cipher suites approved by FIPS.
const APPROVED: [&str; 4] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
];

/// The post-quantum key exchange.
const POST_QUANTUM_CURVE: &str = "X25519MLKEM768";

/// Applies a policy to a context. Must be the last change.
pub(crate) fn enforce(policy: CompliancePolicy, common: &mut CommonTlsContext) {
    let params = |common: &mut CommonTlsContext| -> TlsParameters {
        common.tls_params.take().unwrap_or_default()
    };
    let held = match policy {
        CompliancePolicy::None => return,
        CompliancePolicy::Fips140v2 => {
            let mut params = params(common);
            params.tls_minimum_protocol_version = TlsProtocol::TlSv12.into();
            params.tls_maximum_protocol_version = TlsProtocol::TlSv12.into();
            params
                .cipher_suites
                .retain(|suite| APPROVED.contains(&suite.as_str()));
            params.ecdh_curves.clear();
            params
        }
        CompliancePolicy::Fips140v3 => TlsParameters {
            compliance_policies: vec![Native::Fips202205.into()],
            ..params(common)
        },
        CompliancePolicy::PostQuantum => TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv13.into(),
            cipher_suites: APPROVED.map(str::to_owned).to_vec(),
            ecdh_curves: vec![POST_QUANTUM_CURVE.to_owned()],
            ..params(common)
        },
    };

    common.tls_params = Some(held);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context with a suite that is approved and one that is not, held to a policy.
    fn held(policy: CompliancePolicy) -> TlsParameters {
        let suites = ["AES128-SHA", "ECDHE-RSA-AES128-GCM-SHA256"]
            .map(str::to_owned)
            .to_vec();
        let params = TlsParameters {
            cipher_suites: suites,
            ecdh_curves: vec!["X25519".to_owned()],
            tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
            ..TlsParameters::default()
        };
        let mut common = CommonTlsContext {
            tls_params: Some(params),
            ..CommonTlsContext::default()
        };
        enforce(policy, &mut common);
        common.tls_params.unwrap()
    }

    #[test]
    fn compliance_policies_restrict_requested_tls_settings() {
        assert_eq!(held(CompliancePolicy::None).cipher_suites.len(), 2);
        let old = held(CompliancePolicy::Fips140v2);
        assert_eq!(old.cipher_suites, ["ECDHE-RSA-AES128-GCM-SHA256"]);
        assert!(old.ecdh_curves.is_empty());
        assert_eq!(old.tls_maximum_protocol_version(), TlsProtocol::TlSv12);
        let new = held(CompliancePolicy::Fips140v3);
        assert_eq!(new.compliance_policies, [i32::from(Native::Fips202205)]);
        assert_eq!(new.cipher_suites.len(), 2);
        let quantum = held(CompliancePolicy::PostQuantum);
        assert_eq!(quantum.cipher_suites, APPROVED);
        assert_eq!(quantum.ecdh_curves, [POST_QUANTUM_CURVE]);
        assert_eq!(quantum.tls_minimum_protocol_version(), TlsProtocol::TlSv13);
    }
}
