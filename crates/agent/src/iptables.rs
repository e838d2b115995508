//! Traffic capture: the rules that redirect a pod's connections to its Envoy, and their
//! installation in the kernel.
//!
//! ```text
//! flags, environment ─▶ Capture ─▶ rules of one family ─▶ text for iptables-restore
//!                                        │
//!                      iptables-save ─▶ State ─▶ nothing to do │ apply │ clean up, then apply
//! ```
//!
//! Flags, variables and rules match istio-iptables; with `--native-nftables` the rules match
//! istio-nftables, and `nft` reads the text. Every step up to the text is a pure function of its
//! input.

mod apply;
mod capture;
mod dns;
mod families;
mod flags;
mod netlink;
mod nftables;
mod options;
mod ranges;
mod routes;
mod rule;
mod rules;
mod state;
mod tool;
mod trace;
mod validation;

pub use apply::{ApplyError, DryRun, apply, dry_run};
pub use capture::{Capture, CaptureError, Mode};
pub use families::IpFamily;
pub use options::{HostFacts, Options};
pub use routes::RouteError;
pub use rule::{Rule, Table, restore_text};
pub use rules::rules;
pub use tool::{ToolError, programs};
pub use trace::GROUP as TRACE_GROUP;
pub use validation::{VALIDATION_EXIT_CODE, ValidationError, validate};
