//! What tests of all signers have in common.

use rcgen::{CertificateParams, DistinguishedName, KeyPair, SanType};

use super::*;

/// The lifetime of [`request`].
pub(in crate::ca) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A request for an identity with a new key, which names a signer.
pub(in crate::ca) fn request(identity: &str, named_signer: &str) -> CheckedRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![SanType::URI(identity.try_into().unwrap())];
    let csr = params.serialize_request(&KeyPair::generate().unwrap());
    let csr = csr.unwrap().pem().unwrap();
    let identity = Identity::parse(identity).unwrap();
    CheckedRequest::new(&csr, identity, DAY, named_signer).unwrap()
}
