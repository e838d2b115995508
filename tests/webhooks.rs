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

#[path = "shared/any_certificate.rs"]
mod any_certificate;
#[path = "webhooks/any_pods.rs"]
mod any_pods;
#[path = "webhooks/authority.rs"]
mod authority;
#[path = "webhooks/configuration.rs"]
mod configuration;
#[path = "webhooks/injector.rs"]
mod injector;
#[path = "webhooks/installed.rs"]
mod installed;
#[path = "webhooks/life.rs"]
mod life;
#[path = "webhooks/limits.rs"]
mod limits;
#[path = "webhooks/plan_warnings.rs"]
mod plan_warnings;
#[path = "webhooks/pods.rs"]
mod pods;
#[path = "injection/pods.rs"]
mod random_pods;

use navarch_testkit::wait::until;
