//! Real Envoys route requests as the files demand, after edits, restarts and invalid files.
//!
//! Needs Envoy from `make tools`. The tests share fixed loopback addresses, so they run one after
//! the other.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, print, spawn and read its switches from the environment"
)]

mod accepts;
mod hostile;
mod networks;
mod past;
mod policy;
mod quarantine;
mod requests;
mod rollouts;
mod secrets;
mod traffic;
mod transports;

use std::sync::LazyLock;

use navarch_tests::issuer;
use navarch_tests::parity::{case, deliberate, input};
use tokio::sync::Mutex;

/// Locked by each test while it runs.
static ONE_AT_A_TIME: LazyLock<Mutex<()>> = LazyLock::new(|| Mutex::new(()));
