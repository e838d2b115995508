//! Certificate signing requests (CSRs), as callers of the CA send them.

use std::time::{Duration, SystemTime};

use navarch::api::identity::Identity;
use navarch::pki::{KeyType, SigningRequest};
use navarch::security::ca::{Authority, Bundle, Subject};

/// The caller's authenticated identity; the request must not change it.
const CALLER: &str = "spiffe://cluster.local/ns/shop/sa/web";

/// Signs the input if it is a CSR.
///
/// # Panics
/// If anything of the request but its public key is in the certificate.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(request) = SigningRequest::parse(&text) else {
        return;
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let day = Duration::from_secs(86_400);
    let bundle = Bundle::self_signed("cluster.local", KeyType::P256, 10 * day, now)
        .expect("random numbers are available");
    let authority = Authority::new(&bundle, now).expect("a new CA certificate is valid");
    let subject = Subject::Workload(Identity::parse(CALLER).expect("the identity is valid"));
    let Ok(chain) = authority.sign(&request, &subject, day, now) else {
        return;
    };
    let leaf = chain
        .first()
        .expect("a chain begins with the leaf certificate");
    let has = |text: &str| leaf.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has(CALLER), "the certificate has the caller's identity");
    assert!(!has("evil"), "the certificate has no name from the request");
}
