//! Virtual hosts come with their route configurations and after them.

use super::super::*;
use super::rig::*;

/// The virtual host subscriptions that the push thread receives.
fn hosts_of(routes: &[&str]) -> Effect {
    let names = routes.iter().map(|name| ResourceName::new(*name)).collect();
    Effect::Subscribe(VHDS, Interest { wildcard: true, names: Arc::new(names) })
}

/// A delta stream with one route configuration and a host of it, both answered.
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
fn they_follow_the_routes_that_are_asked_for() {
    let mut rig = settled();
    let effects = rig.request(delta(RDS, &["81"], "", None));
    assert_eq!(effects.last(), Some(&hosts_of(&["80", "81"])));
    // Hosts that come before their routes are lost to Envoy: they wait.
    rig.answer(VHDS, &[("80/a", "1"), ("81/b", "1")]);
    rig.is_silent();
    rig.answer(RDS, &[("80", "1"), ("81", "1")]);
    rig.sends(RDS, &["81=1"], &[]);
    rig.sends(VHDS, &["81/b=1"], &[]);
}

#[test]
fn they_leave_after_the_routes_that_hold_them_all_again() {
    let mut rig = settled();
    rig.change(VHDS, &[]);
    rig.change(RDS, &[("80", "whole")]);
    rig.sends(RDS, &["80=whole"], &[]);
    rig.sends(VHDS, &[], &["80/a"]);
}

#[test]
fn who_asks_for_routes_anew_gets_their_hosts_anew() {
    let mut rig = settled();
    rig.request(delta(RDS, &["-80"], "", None));
    rig.request(delta(RDS, &["80"], "", None));
    for kind in [RDS, VHDS] {
        rig.answer(kind, &[]);
    }
    rig.answer(VHDS, &[("80/a", "1")]);
    rig.answer(RDS, &[("80", "1")]);
    rig.sends(RDS, &["80=1"], &[]);
    rig.sends(VHDS, &["80/a=1"], &[]);
}

#[test]
fn after_rejected_routes_they_come_again() {
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
fn who_comes_back_keeps_its_hosts_until_it_asks_for_routes() {
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
fn a_whole_state_stream_is_told_that_there_are_none() {
    let request = state(VHDS, &[], "", None);
    assert!(matches!(request, Request::Unserved { .. }));
}
