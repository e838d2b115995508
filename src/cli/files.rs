//! The limit of open files and connections of the process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The usual limit, if the system does not report it.
const DEFAULT_LIMIT: usize = 1024;

/// Raises the limit to the maximum, as Go's runtime does for istiod. Returns the limit.
pub(super) fn raise_limit() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return DEFAULT_LIMIT;
    };
    let limit = if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        hard
    } else {
        soft
    };
    usize::try_from(limit).unwrap_or(usize::MAX)
}
