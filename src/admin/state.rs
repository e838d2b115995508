//! What the pages are made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use super::access::DebugAccess;
use crate::push::worker::PushHandle;
use crate::security::ca::keeper::Orders;
use crate::source::Problem;
use crate::xds::connections::Connections;

/// The version stamp of the build.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The release, such as `0.1.0`.
    pub version: &'static str,
    /// The commit that it was built from, `unknown` outside of git.
    pub revision: &'static str,
}

/// What the pages read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminState {
    /// The push thread.
    pub push: PushHandle,
    /// Connected proxies.
    pub connections: Arc<Connections>,
    /// What sources could not read, by place.
    pub problems: Problems,
    /// All metrics.
    pub metrics: Arc<Registry>,
    /// Who looks after the roots, where there is a CA.
    pub roots: Option<Orders>,
    /// Who may see the debug pages.
    pub access: DebugAccess,
    /// The build.
    pub build: Build,
}

/// Problems of the input by place (file), as they stand now.
#[derive(Clone, Debug, Default)]
pub struct Problems(Arc<Mutex<BTreeMap<Arc<str>, Vec<Problem>>>>);

impl Problems {
    /// Puts the problems of a place in place of those told before.
    pub fn set(&self, place: Arc<str>, problems: Vec<Problem>) {
        let mut all = self.0.lock();
        if problems.is_empty() {
            all.remove(&place);
        } else {
            all.insert(place, problems);
        }
    }

    /// All problems by place.
    #[must_use]
    pub fn all(&self) -> BTreeMap<Arc<str>, Vec<Problem>> {
        self.0.lock().clone()
    }
}
