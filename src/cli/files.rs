//! How many files and connections the process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What is taken where the system says nothing: what it usually gives.
const USUAL: usize = 1024;

/// Raises the limit to the highest that the process may set, as Go's runtime does for istiod. Gives the limit.
pub(super) fn raise_limit() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return USUAL };
    let limit = if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(limit).unwrap_or(usize::MAX)
}
