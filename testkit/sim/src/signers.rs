//! The root that signs: all live proxies must trust it before, and as long as certificates of it
//! live.
//!
//! The root that is stored as the one that signs is that of all replicas: each reads it before it
//! signs with it. Proxies acknowledge roots over xDS, as their agents do.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use navarch_security::ca::rotation::Phase;
use tokio::time::{Instant, sleep};

use crate::agent::Agent;
use crate::api_server::ApiServer;
use crate::proxy::{Proxy, Replicas};
use crate::story::Story;
use crate::tell;

/// The Secret with the root.
const SECRET: &str = "istio-ca-secret";
/// How often it is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Within this time a rotation ends, with certificates of ten minutes.
const ROTATION_TIME: Duration = Duration::from_mins(30);
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// After this many looks the trust in certificates is checked. It is frequent, since agents that
/// hear of the next root renew theirs at once, and others some seconds later.
const LOOKS: u64 = 2;
/// A proxy that has just connected to another replica may not be in the report of that one yet.
const CONNECTED: Duration = Duration::from_secs(30);

/// Follows the root of a simulation, and checks each change.
pub(crate) async fn follow(story: Story, server: ApiServer, proxies: Vec<Proxy>) {
    let mut before = None;
    let mut distrusted = BTreeSet::new();
    for look in 0_u64.. {
        sleep(LOOK_INTERVAL).await;
        if look % LOOKS == 0 {
            check_certificates(&story, &proxies, &mut distrusted);
        }
        let Some(signer) = signer(&server) else {
            continue;
        };
        if before.as_ref() == Some(&signer) {
            continue;
        }

        if before.is_some() {
            tell!(story, "simulation", "the next root signs");
            check(&story, &signer, &proxies);
        }
        before = Some(signer);
    }
}

/// Waits until no root is distributed or retires.
pub(crate) async fn settle(story: &Story, replicas: &Replicas) {
    let end = Instant::now() + ROTATION_TIME;
    while !are_settled(replicas) {
        if Instant::now() > end {
            story.violated(
                "a rotation ends",
                "a root is distributed, or a former one left",
            );
            return;
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn are_settled(replicas: &Replicas) -> bool {
    let replicas = replicas.lock();
    let mut signing = replicas.iter().filter_map(|replica| replica.signing());
    signing.all(|signing| signing.rotation.status().phase == Phase::Settled)
}

/// The root that signs (PEM).
fn signer(server: &ApiServer) -> Option<String> {
    let secret = server.named("", "Secret", SECRET).into_iter().next()?;
    let encoded = secret.pointer("/data/ca-cert.pem")?.as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

/// Whether a proxy must trust what live proxies trust.
fn counts(proxy: &&Proxy) -> bool {
    let is_known = proxy.connected_for().is_some_and(|time| time >= CONNECTED);
    proxy.spec.account.is_some() && is_known
}

/// All proxies that count trust the certificate of each Envoy until it ends. Those that do not are
/// told once.
fn check_certificates(story: &Story, proxies: &[Proxy], distrusted: &mut BTreeSet<[String; 2]>) {
    for owner in proxies {
        let Some(root) = owner.agent().and_then(Agent::live_root) else {
            continue;
        };
        for proxy in proxies.iter().filter(counts) {
            let pair = [proxy.spec.name.clone(), owner.spec.name.clone()];
            if !proxy.trusts(&root) && distrusted.insert(pair) {
                story.violated(
                    "a root is trusted as long as certificates of it live",
                    &format!("{} does not trust {}", proxy.spec.name, owner.spec.name),
                );
            }
        }
    }
}

/// All proxies that count trust the root.
fn check(story: &Story, signer: &str, proxies: &[Proxy]) {
    for proxy in proxies.iter().filter(counts) {
        if !proxy.trusts(signer) {
            story.violated(
                "a root signs once live proxies trust it",
                &format!("{} does not", proxy.spec.name),
            );
        }
    }
}
