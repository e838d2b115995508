//! Make before break, one transition at a time.

use super::super::*;
use super::rig::*;

/// A delta stream with a cluster and its endpoints, a listener and a route, all acknowledged.
fn settled() -> Rig {
    let mut rig = Rig::new(Protocol::Delta);
    for (resource_type, names, resources) in [
        (CDS, &[][..], &[("old", "1")][..]),
        (EDS, &["old"], &[("old", "1")]),
        (LDS, &[], &[("l", "1")]),
        (RDS, &["r"], &[("r", "old")]),
    ] {
        rig.request(delta(resource_type, names, "", None));
        rig.answer(resource_type, resources);
        let got = rig.next().unwrap();
        assert_eq!(got.resource_type, resource_type);
        rig.request(delta(resource_type, &[], &got.nonce, None));
    }
    rig.is_silent();
    rig
}

#[test]
fn routes_wait_until_the_endpoints_of_new_clusters_are_sent() {
    let mut rig = settled();
    rig.change(CDS, &[("new", "1"), ("old", "1")]);
    rig.change(RDS, &[("r", "new")]);
    rig.sends(CDS, &["new=1"], &[]);
    rig.is_silent();
    rig.request(delta(EDS, &["new"], "", None));
    rig.is_silent();
    rig.answer(EDS, &[("new", "1"), ("old", "1")]);
    rig.sends(EDS, &["new=1"], &[]);
    rig.sends(RDS, &["r=new"], &[]);
}

#[test]
fn a_cluster_that_is_removed_before_its_endpoints_are_subscribed_holds_nothing() {
    let mut rig = settled();
    rig.change(CDS, &[("new", "1"), ("old", "1")]);
    let clusters = rig.sends(CDS, &["new=1"], &[]);
    rig.request(delta(CDS, &[], &clusters, None));
    rig.change(CDS, &[("old", "1")]);
    let clusters = rig.sends(CDS, &[], &["new"]);
    rig.request(delta(CDS, &[], &clusters, None));

    rig.change(RDS, &[("r", "older")]);
    rig.sends(RDS, &["r=older"], &[]);
}

#[test]
fn removals_do_not_wait_forever() {
    let mut rig = settled();
    rig.change(CDS, &[("new", "1"), ("old", "1")]);
    rig.change(RDS, &[("r", "new")]);
    rig.sends(CDS, &["new=1"], &[]);
    rig.is_silent();
    assert_eq!(rig.session.wake_at(), Some(seconds(5)));
    rig.now = seconds(5);
    let nonce = rig.sends(RDS, &["r=new"], &[]);
    rig.request(delta(RDS, &[], &nonce, None));
    // A type without a subscription is not awaited.
    rig.change(RDS, &[("r", "newer")]);
    rig.sends(RDS, &["r=newer"], &[]);
}

#[test]
fn listeners_wait_for_the_first_endpoints_that_a_client_subscribes_to() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.request(delta(LDS, &[], "", None));
    rig.answer(CDS, &[("a", "1")]);
    rig.answer(LDS, &[("l", "1")]);
    rig.sends(CDS, &["a=1"], &[]);
    rig.is_silent();

    rig.request(delta(EDS, &["a"], "", None));
    rig.answer(EDS, &[("a", "1")]);
    rig.sends(EDS, &["a=1"], &[]);
    rig.sends(LDS, &["l=1"], &[]);
}

#[test]
fn a_client_that_subscribes_to_no_endpoints_is_waited_for_once() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.request(delta(LDS, &[], "", None));
    rig.answer(CDS, &[("a", "1")]);
    rig.answer(LDS, &[("l", "1")]);
    let clusters = rig.sends(CDS, &["a=1"], &[]);
    rig.request(delta(CDS, &[], &clusters, None));
    rig.is_silent();
    assert_eq!(rig.session.wake_at(), Some(seconds(1)));

    rig.now = seconds(1);
    let listeners = rig.sends(LDS, &["l=1"], &[]);
    rig.request(delta(LDS, &[], &listeners, None));

    rig.change(CDS, &[("a", "1"), ("b", "1")]);
    rig.change(LDS, &[("l", "2")]);
    rig.sends(CDS, &["b=1"], &[]);
    rig.sends(LDS, &["l=2"], &[]);
}

#[test]
fn endpoints_and_secrets_never_wait() {
    let mut rig = settled();
    rig.change(CDS, &[("new", "1"), ("old", "1")]);
    rig.sends(CDS, &["new=1"], &[]);
    rig.change(EDS, &[("old", "2")]);
    rig.sends(EDS, &["old=2"], &[]);
    rig.request(delta(SDS, &["cert"], "", None));
    rig.answer(SDS, &[("cert", "1")]);
    rig.sends(SDS, &["cert=1"], &[]);
}

#[test]
fn clusters_are_removed_after_listeners_and_routes_are_acknowledged() {
    let mut rig = settled();
    rig.change(CDS, &[("new", "1")]);
    rig.change(LDS, &[("l", "2")]);
    rig.change(RDS, &[("r", "new")]);
    let clusters = rig.sends(CDS, &["new=1"], &[]);
    rig.request(delta(CDS, &[], &clusters, None));
    rig.request(delta(EDS, &["new"], "", None));
    rig.answer(EDS, &[("new", "1"), ("old", "1")]);
    rig.sends(EDS, &["new=1"], &[]);
    let listeners = rig.sends(LDS, &["l=2"], &[]);
    let routes = rig.sends(RDS, &["r=new"], &[]);
    rig.request(delta(LDS, &[], &listeners, None));
    rig.is_silent();
    // A NACK counts as a response.
    rig.request(delta(RDS, &[], &routes, Some("no")));
    rig.sends(CDS, &[], &["old"]);
}

#[test]
fn clusters_are_removed_after_a_timeout_without_acknowledgements() {
    let mut rig = settled();
    rig.change(CDS, &[]);
    rig.change(RDS, &[("r", "none")]);
    rig.sends(RDS, &["r=none"], &[]);
    rig.is_silent();
    assert_eq!(rig.session.wake_at(), Some(seconds(5)));
    rig.now = seconds(5);
    rig.sends(CDS, &[], &["old"]);
}

#[test]
fn clusters_are_removed_at_once_unless_other_types_change() {
    let mut rig = settled();
    rig.change(CDS, &[("new", "1")]);
    rig.sends(CDS, &["new=1"], &["old"]);
}

#[test]
fn a_reconnecting_proxy_keeps_clusters_until_its_routes_are_updated() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(come_back(CDS, &[], &["new", "old"]));
    rig.answer(CDS, &[("new", "1")]);
    let clusters = rig.sends(CDS, &["new=1"], &[]);
    rig.request(delta(CDS, &[], &clusters, None));
    rig.request(delta(EDS, &["new"], "", None));
    rig.answer(EDS, &[("new", "1")]);
    rig.sends(EDS, &["new=1"], &[]);
    for (resource_type, names) in [(LDS, &[][..]), (RDS, &["r"])] {
        rig.is_silent();
        rig.request(delta(resource_type, names, "", None));
        rig.answer(resource_type, &[("r", "new")]);
        let nonce = rig.sends(resource_type, &["r=new"], &[]);
        rig.request(delta(resource_type, &[], &nonce, None));
    }
    rig.sends(CDS, &[], &["old"]);
}

#[test]
fn a_reconnecting_proxy_with_only_cds_keeps_clusters_for_a_timeout() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(come_back(CDS, &[], &["old"]));
    rig.answer(CDS, &[]);
    let nonce = rig.sends(CDS, &[], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.is_silent();
    assert_eq!(rig.session.wake_at(), Some(seconds(5)));
    rig.now = seconds(5);
    rig.sends(CDS, &[], &["old"]);
}

#[test]
fn a_cluster_restored_before_its_removal_was_sent_is_sent_and_kept() {
    let mut rig = settled();
    rig.change(CDS, &[]);
    rig.change(RDS, &[("r", "none")]);
    let routes = rig.sends(RDS, &["r=none"], &[]);
    rig.is_silent();
    rig.change(CDS, &[("old", "1")]);
    rig.sends(CDS, &["old=1"], &[]);
    rig.sends(EDS, &["old=1"], &[]);
    rig.request(delta(RDS, &[], &routes, None));
    rig.is_silent();
}

#[test]
fn endpoints_leave_after_their_clusters() {
    let mut rig = settled();
    rig.change(CDS, &[]);
    rig.change(EDS, &[]);
    let clusters = rig.sends(CDS, &[], &["old"]);
    rig.is_silent();
    rig.request(delta(CDS, &[], &clusters, None));
    rig.sends(EDS, &[], &["old"]);
}

#[test]
fn endpoints_of_a_cluster_that_the_client_dropped_are_not_spoken_of() {
    let mut rig = settled();
    rig.change(CDS, &[]);
    rig.change(EDS, &[]);
    let clusters = rig.sends(CDS, &[], &["old"]);
    rig.request(delta(EDS, &["-old"], "", None));
    rig.request(delta(CDS, &[], &clusters, None));
    rig.is_silent();
}

#[test]
fn a_changed_cluster_has_its_endpoints_again_together_with_changed_ones() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let nonce = rig.sends(CDS, &["a=1", "b=1", "c=1"], &[]);
    rig.request(delta(CDS, &[], &nonce, None));
    rig.request(delta(EDS, &["a", "b", "c"], "", None));
    rig.answer(EDS, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let nonce = rig.sends(EDS, &["a=1", "b=1", "c=1"], &[]);
    rig.request(delta(EDS, &[], &nonce, None));
    rig.change(CDS, &[("a", "2"), ("b", "1"), ("c", "1")]);
    rig.change(EDS, &[("a", "1"), ("b", "1"), ("c", "2")]);
    rig.sends(CDS, &["a=2"], &[]);
    rig.sends(EDS, &["a=1", "c=2"], &[]);
    rig.is_silent();
}

/// A ztunnel's stream with a workload and a policy, both acknowledged.
fn ztunnel() -> Rig {
    let mut rig = Rig::new(Protocol::Delta);
    for resource_type in [WDS, WADS] {
        rig.request(delta(resource_type, &[], "", None));
        rig.answer(resource_type, &[("a", "1")]);
        let nonce = rig.sends(resource_type, &["a=1"], &[]);
        rig.request(delta(resource_type, &[], &nonce, None));
    }
    rig.is_silent();
    rig
}

#[test]
fn policies_are_sent_after_the_workloads_that_refer_to_them() {
    let mut rig = ztunnel();
    rig.change(WDS, &[("a", "2")]);
    let workloads = rig.sends(WDS, &["a=2"], &[]);

    // The next change of the workload waits for the acknowledgement of this one, and so does the
    // policy that it refers to.
    rig.change(WDS, &[("a", "3")]);
    rig.change(WADS, &[("a", "3")]);
    rig.is_silent();
    rig.request(delta(WDS, &[], &workloads, None));
    rig.sends(WDS, &["a=3"], &[]);
    rig.sends(WADS, &["a=3"], &[]);
}

#[test]
fn policies_wait_a_second_at_most_for_a_slow_client() {
    let mut rig = ztunnel();
    rig.change(WDS, &[("a", "2")]);
    let workloads = rig.sends(WDS, &["a=2"], &[]);
    rig.change(WDS, &[("a", "3")]);
    rig.change(WADS, &[("a", "3")]);
    rig.is_silent();

    assert_eq!(rig.session.wake_at(), Some(seconds(1)));
    rig.now = seconds(1);
    let policies = rig.sends(WADS, &["a=3"], &[]);
    rig.request(delta(WADS, &[], &policies, None));
    rig.is_silent();

    // With the workload the client looks at open connections only when a policy comes.
    rig.request(delta(WDS, &[], &workloads, None));
    rig.sends(WDS, &["a=3"], &[]);
    rig.sends(WADS, &["a=3"], &[]);
    rig.is_silent();
}
