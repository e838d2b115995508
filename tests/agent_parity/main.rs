//! For the same input, the agent's files and rules equal those of pilot-agent:
//! `tests/agent_parity/*.json`, or another directory of the same form in `NAVARCH_AGENT_PARITY`.
//!
//! `NAVARCH_AGENT_PARITY_REPORT` is a file for the outcome of every case: `{"iptables/<name>":
//! {"equal": true, "differences": []}, …}`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail loudly and read its switches from the environment"
)]

mod bootstrap;
mod cases;
mod iptables;

#[test]
fn iptables_rules_are_those_of_istio_iptables() {
    cases::judge("iptables", 20, iptables::differences);
}

#[test]
fn bootstraps_are_those_of_pilot_agent() {
    cases::judge("bootstrap", 11, bootstrap::differences);
}

/// The static runtime flags of a bootstrap.
fn flags(bootstrap: &serde_json::Value) -> &serde_json::Value {
    &bootstrap["layered_runtime"]["layers"][0]["static_layer"]
}

/// Envoy matches each value of a header by itself, unless a flag says that it joins them first.
#[test]
fn cve_2026_26308_no_flag_joins_values_of_headers_before_policies_look() {
    let bootstraps = bootstrap::made_by_default();
    assert!(bootstraps.len() > 3, "{}", bootstraps.len());
    for (name, bootstrap) in bootstraps {
        let flags = flags(&bootstrap).as_object().unwrap();
        assert!(!flags.is_empty(), "{name}: {bootstrap}");
        let joins = |flag: &&String| flag.ends_with("match_headers_individually");
        assert_eq!(flags.keys().find(joins), None, "{name}");
    }
}

/// Envoy's corrections of parameters in paths are on, unless a flag says otherwise.
#[test]
fn cve_2026_73511_cve_2026_73551_and_cve_2026_73553_no_flag_reverts_path_parameters() {
    let bootstraps = bootstrap::made_by_default();
    assert!(bootstraps.len() > 3, "{}", bootstraps.len());
    for (name, bootstrap) in bootstraps {
        let flags = flags(&bootstrap).as_object().unwrap();
        assert!(!flags.is_empty(), "{name}: {bootstrap}");
        let reverts =
            |flag: &&String| flag.contains("path_parameters") || flag.contains("strip_dotdot");
        assert_eq!(flags.keys().find(reverts), None, "{name}");
    }
}

/// Envoy's runtime flag must not keep fragments: Envoy then strips the fragment of a path before
/// policies match the path.
#[test]
fn cve_2021_39156_fragments_are_stripped_before_policies_match() {
    let bootstraps = bootstrap::made_by_default();
    assert!(bootstraps.len() > 3, "{}", bootstraps.len());
    for (name, bootstrap) in bootstraps {
        let flags = flags(&bootstrap);
        assert!(flags.is_object(), "{name}: {bootstrap}");
        let cut_off =
            &flags["envoy.reloadable_features.http_strip_fragment_from_path_unsafe_if_disabled"];
        assert!(
            cut_off.is_null(),
            "{name}: Envoy's default is on, but the bootstrap has {cut_off}"
        );
    }
}
