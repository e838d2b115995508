//! Virtual hosts are sent with their route configurations, or after them.

use super::super::*;
use super::rig::*;

/// The virtual host subscriptions that the push thread receives.
fn hosts_of(routes: &[&str]) -> Effect {
    let names = routes.iter().map(|name| ResourceName::new(*name)).collect();
    Effect::Subscribe(
        VHDS,
        Interest {
            wildcard: true,
            names: Arc::new(names),
        },
    )
}

/// A delta stream with one route configuration and one of its hosts, both acknowledged.
fn settled() -> Rig {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(delta(RDS, &["80"], "", None));
    rig.answer(RDS, &[("80", "1")]);
    let routes = rig.sends(RDS, &["80=1"], &[]);
    rig.request(delta(RDS, &[], &routes, None));
    assert_eq!(rig.request(delta(VHDS, &[], "", None)), [hosts_of(&["80"])]);
    rig.answer(VHDS, &[("80/a", "1")]);
    let hosts = rig.sends(VHDS, &["80/a=1"], &[]);
    rig.request(delta(VHDS, &[], &hosts, None));
    rig.is_silent();
    rig
}

#[test]
fn virtual_hosts_follow_subscribed_routes() {
    let mut rig = settled();
    let effects = rig.request(delta(RDS, &["81"], "", None));
    assert_eq!(effects.last(), Some(&hosts_of(&["80", "81"])));
    // Envoy ignores hosts that arrive before their routes, so they are held back.
    rig.answer(VHDS, &[("80/a", "1"), ("81/b", "1")]);
    rig.is_silent();
    rig.answer(RDS, &[("80", "1"), ("81", "1")]);
    rig.sends(RDS, &["81=1"], &[]);
    rig.sends(VHDS, &["81/b=1"], &[]);
}

#[test]
fn virtual_hosts_are_removed_after_their_routes() {
    let mut rig = settled();
    rig.change(VHDS, &[("80/b", "1")]);
    rig.change(RDS, &[("80", "2")]);
    rig.sends(RDS, &["80=2"], &[]);
    rig.sends(VHDS, &["80/b=1"], &["80/a"]);
}

#[test]
fn the_last_virtual_hosts_are_removed_once_there_are_others() {
    let mut rig = settled();
    rig.change(VHDS, &[]);
    rig.change(RDS, &[("80", "whole")]);
    let routes = rig.sends(RDS, &["80=whole"], &[]);
    rig.request(delta(RDS, &[], &routes, None));
    rig.is_silent();
    rig.now += ORDER_WAIT;
    rig.is_silent();
    assert!(rig.session.is_at_rest(), "nothing is waited for");

    rig.change(RDS, &[("80", "with vhds")]);
    rig.change(VHDS, &[("80/b", "1")]);
    rig.sends(RDS, &["80=with vhds"], &[]);
    rig.sends(VHDS, &["80/b=1"], &["80/a"]);
}

#[test]
fn a_route_configuration_without_vhds_keeps_its_hosts_beside_one_with() {
    let mut rig = settled();
    rig.request(delta(RDS, &["81"], "", None));
    rig.answer(VHDS, &[("80/a", "1"), ("81/b", "1")]);
    rig.answer(RDS, &[("80", "1"), ("81", "1")]);
    let routes = rig.sends(RDS, &["81=1"], &[]);
    rig.request(delta(RDS, &[], &routes, None));
    let hosts = rig.sends(VHDS, &["81/b=1"], &[]);
    rig.request(delta(VHDS, &[], &hosts, None));

    rig.change(VHDS, &[("81/b", "1")]);
    rig.change(RDS, &[("80", "whole"), ("81", "1")]);
    let routes = rig.sends(RDS, &["80=whole"], &[]);
    rig.request(delta(RDS, &[], &routes, None));
    rig.is_silent();
    assert!(rig.session.is_at_rest(), "nothing is waited for");

    // What another has lost is removed as ever.
    rig.change(VHDS, &[("81/c", "1")]);
    let hosts = rig.sends(VHDS, &["81/c=1"], &["81/b"]);
    rig.request(delta(VHDS, &[], &hosts, None));

    rig.change(RDS, &[("80", "with vhds"), ("81", "1")]);
    rig.change(VHDS, &[("80/d", "1"), ("81/c", "1")]);
    rig.sends(RDS, &["80=with vhds"], &[]);
    rig.sends(VHDS, &["80/d=1"], &["80/a"]);
}

#[test]
fn clusters_do_not_wait_for_virtual_hosts_that_are_kept() {
    let mut rig = settled();
    rig.request(delta(CDS, &[], "", None));
    rig.answer(CDS, &[]);
    let clusters = rig.sends(CDS, &[], &[]);
    rig.request(delta(CDS, &[], &clusters, None));

    rig.change(VHDS, &[]);
    rig.is_silent();
    assert!(rig.session.is_acknowledged(VHDS));
}

#[test]
fn a_proxy_that_comes_back_without_vhds_keeps_its_virtual_hosts() {
    let mut rig = Rig::new(Protocol::Delta);
    rig.request(come_back(VHDS, &[], &["80/a"]));
    rig.request(come_back(RDS, &["80"], &["80"]));
    rig.answer(VHDS, &[]);
    rig.answer(RDS, &[("80", "whole")]);
    rig.sends(RDS, &["80=whole"], &[]);
    rig.sends(VHDS, &[], &[]);
    rig.now += ORDER_WAIT;
    rig.is_silent();
}

#[test]
fn resubscribing_to_routes_resends_virtual_hosts() {
    let mut rig = settled();
    rig.request(delta(RDS, &["-80"], "", None));
    rig.request(delta(RDS, &["80"], "", None));
    for resource_type in [RDS, VHDS] {
        rig.answer(resource_type, &[]);
    }
    rig.answer(VHDS, &[("80/a", "1")]);
    rig.answer(RDS, &[("80", "1")]);
    rig.sends(RDS, &["80=1"], &[]);
    rig.sends(VHDS, &["80/a=1"], &[]);
}

#[test]
fn rejected_routes_are_sent_again() {
    let mut rig = settled();
    rig.change(RDS, &[("80", "bad")]);
    let nonce = rig.sends(RDS, &["80=bad"], &[]);
    rig.request(delta(RDS, &[], &nonce, Some("no")));
    rig.is_silent();
    rig.change(RDS, &[("80", "good")]);
    rig.sends(RDS, &["80=good"], &[]);
    rig.sends(VHDS, &["80/a=1"], &[]);
}

#[test]
fn a_reconnecting_proxy_keeps_virtual_hosts_until_it_requests_routes() {
    let mut rig = Rig::new(Protocol::Delta);
    assert_eq!(rig.request(come_back(VHDS, &[], &["80/a", "80/gone"])), []);
    rig.is_silent();
    let effects = rig.request(come_back(RDS, &["80"], &["80"]));
    assert_eq!(effects.last(), Some(&hosts_of(&["80"])));
    rig.answer(VHDS, &[("80/a", "1")]);
    rig.answer(RDS, &[("80", "1")]);
    rig.sends(RDS, &["80=1"], &[]);
    rig.sends(VHDS, &["80/a=1"], &["80/gone"]);
}

#[test]
fn a_state_of_the_world_stream_gets_no_virtual_hosts() {
    let request = state(VHDS, &[], "", None);
    assert!(matches!(request, Request::Unserved { .. }));
}
