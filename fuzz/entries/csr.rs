//! Signing requests, as callers of the CA send them.

use std::time::{Duration, SystemTime};

use navarch::api::identity::Identity;
use navarch::pki::{KeyType, SigningRequest};
use navarch::security::ca::{Authority, Bundle, Subject};

/// Who asks, whatever the request says.
const CALLER: &str = "spiffe://cluster.local/ns/shop/sa/web";

/// Signs one request, if it is one.
///
/// # Panics
/// When a certificate says anything of the request's but its key.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(request) = SigningRequest::parse(&text) else {
        return;
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let day = Duration::from_secs(86_400);
    let bundle = Bundle::self_signed("cluster.local", KeyType::P256, 10 * day, now)
        .expect("there is randomness");
    let authority = Authority::new(&bundle, now).expect("what was just made is an authority");
    let subject = Subject::Workload(Identity::parse(CALLER).expect("it is one"));
    let Ok(chain) = authority.sign(&request, &subject, day, now) else {
        return;
    };
    let leaf = chain.first().expect("a chain begins with what was signed");
    let has = |text: &str| leaf.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has(CALLER), "the caller's name is in it");
    assert!(!has("evil"), "no name of the request is in it");
}
