//! The agent's outward products are those of pilot-agent for the same input: `tests/agent_parity/*.json`, or another
//! folder of the same form that `NAVARCH_AGENT_PARITY` names.
//!
//! `NAVARCH_AGENT_PARITY_REPORT` names a file to which the outcome of every case is written, as
//! `{"iptables/<name>": {"equal": true, "differences": []}, …}`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail loudly and read its switches from the environment"
)]

mod agent_parity {
    pub(crate) mod bootstrap;
    pub(crate) mod cases;
    pub(crate) mod iptables;
}

use agent_parity::{bootstrap, cases, iptables};

#[test]
fn iptables_rules_are_those_of_istio_iptables() {
    cases::judge("iptables", iptables::differences);
}

#[test]
fn bootstraps_are_those_of_pilot_agent() {
    cases::judge("bootstrap", bootstrap::differences);
}
