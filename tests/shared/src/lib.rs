//! What several test programs and benches of Navarch need and that reads its types, or is for its
//! tests alone; programs and real parts that know no type of Navarch are in `navarch-testkit`.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, has a clock and an environment, and reads this code instead of its docs"
)]

pub mod any_certificate;
pub mod bare_mesh;
pub mod chain;
pub mod client;
pub mod clients;
pub mod growth;
pub mod hbone;
pub mod injection;
pub mod issuer;
pub mod panels;
pub mod parity;
pub mod pod;
pub mod proxy;
pub mod server;
pub mod shown;
pub mod web;
pub mod workload_sds;
pub mod world;

use std::path::{Path, PathBuf};

/// The program `navarch` of this build. Cargo builds it before the tests of its package, and puts it
/// into the folder above theirs.
#[must_use]
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("the system names the program");
    let folder = test.parent().and_then(Path::parent);
    folder
        .expect("tests are in target/PROFILE/deps")
        .join("navarch")
}
