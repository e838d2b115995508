//! Stands where the incremental registry goes: knows nothing yet.
use super::directory::{Directory, DirectoryChange};
use crate::api::mesh::{MeshConfig, MeshNetworks};
use crate::api::object::ObjectRef;
use crate::api::settings::Settings;
use crate::store::Objects;
use std::collections::BTreeSet;
/// stub
#[derive(Debug, Default)]
pub struct Registry {
    directory: Directory,
}
impl Registry {
    /// stub
    pub fn new(_: Settings) -> Self {
        Self::default()
    }
    /// stub
    pub fn set_mesh(&mut self, _: &MeshConfig, _: &MeshNetworks, _: &Objects) -> DirectoryChange {
        DirectoryChange::default()
    }
    /// stub
    pub fn apply(&mut self, _: &Objects, _: &BTreeSet<ObjectRef>) -> DirectoryChange {
        DirectoryChange::default()
    }
    /// stub
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}
