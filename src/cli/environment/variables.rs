//! The variables of a process: which were read, which may be shown, which have no effect.

use std::collections::{BTreeMap, BTreeSet};

use navarch_api::credential_names::{CredentialLikelihood, credential_likelihood};
use parking_lot::Mutex;

use crate::cli::istiod_variables::{ISTIOD, REMOVED_VARIABLES};

/// The variables of a process, and the names that were read.
#[derive(Debug, Default)]
pub(in crate::cli) struct Variables {
    values: BTreeMap<String, String>,
    /// The names that were read, whether set or not.
    read_names: Mutex<BTreeSet<String>>,
}

impl Variables {
    /// Variables with these values.
    pub(in crate::cli) fn new(values: impl IntoIterator<Item = (String, String)>) -> Self {
        Self {
            values: values.into_iter().collect(),
            read_names: Mutex::default(),
        }
    }

    /// The value of a variable.
    pub(in crate::cli) fn get(&self, name: &str) -> Option<String> {
        self.read_names.lock().insert(name.to_owned());
        self.values.get(name).cloned()
    }

    /// All values, for templates and headers that may use any variable. This does not count as
    /// reading them.
    pub(in crate::cli) fn all(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// The names that were read, whether set or not.
    pub(in crate::cli) fn read_names(&self) -> BTreeSet<String> {
        self.read_names.lock().clone()
    }

    /// The variables whose values may be shown to operators: those that were read, without those
    /// that can hold a credential. All others of the process are none of Navarch's business.
    pub(in crate::cli) fn shown(&self) -> BTreeSet<String> {
        let mut names = self.read_names();
        names.retain(|name| credential_likelihood(name) < CredentialLikelihood::Likely);
        names
    }

    /// istiod's variables that are set but were not read, so they have no effect. Variables whose
    /// value matches Navarch's behaviour are omitted.
    pub(in crate::cli) fn ignored(&self) -> Vec<&'static str> {
        let read_names = self.read_names.lock();
        let is_ignored = |(name, usual): &&(&'static str, Option<&str>)| {
            let value = self
                .values
                .get(*name)
                .map(String::as_str)
                .filter(|value| !value.is_empty());
            value.is_some_and(|value| !read_names.contains(*name) && *usual != Some(value))
        };
        ISTIOD
            .iter()
            .chain(REMOVED_VARIABLES)
            .filter(is_ignored)
            .map(|(name, _)| *name)
            .collect()
    }
}
