//! The manifests, and all that is written, in the order of a control plane's life.

use crate::{Deployed, addresses, analysis, leaders, registration, roots, whole};

#[tokio::test(flavor = "multi_thread")]
async fn all_is_applied_and_all_that_navarch_writes_it_may_write() {
    let deployed = Deployed::start().await;
    leaders::hand_over_and_are_preempted(&deployed).await;
    roots::are_in_every_namespace_and_stay(&deployed).await;
    addresses::are_given_once_and_taken_back(&deployed).await;
    analysis::is_told_and_taken_back(&deployed).await;
    registration::follows_proxies(&deployed).await;
    whole::replicas_write_in_turn_and_serve_the_same(&deployed).await;
    assert_eq!(deployed.refused(), Vec::<String>::new());
}
