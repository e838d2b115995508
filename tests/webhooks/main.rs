//! The webhooks with a real API server: the configurations of deploy/, the rights of deploy/, and
//! the messages that users see.
//!
//! Needs the programs of `make tools`.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail loudly and spawn"
)]

mod any_pods;
mod authority;
mod configuration;
mod injector;
mod installed;
mod life;
mod limits;
mod plan_warnings;
mod pods;

use navarch_testkit::wait::until;
use navarch_tests::any_certificate;
use navarch_tests::injection::pods as random_pods;
