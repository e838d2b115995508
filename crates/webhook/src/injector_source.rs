//! Keeps the injector up to date with its inputs: the chart's ConfigMap or files, the mesh config,
//! ProxyConfigs, and the versions of nodes.
//!
//! ```text
//! files or ConfigMap ─▶ TextsSource ─┐
//! snapshot ─────────▶ MeshSnapshot ──┴▶ Follower ─▶ CurrentInjector, metrics, the listener of states
//! ```

mod follower;
mod texts;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::inject::NativeSidecars;
use navarch_api::mesh::MeshConfig;
use navarch_api::names::ClusterId;
use navarch_store::Objects;

pub use follower::{Follower, Parts};
pub use texts::TextsSource;

/// From flags and environment. The templates and values are read from the directory or ConfigMap
/// later.
#[derive(Clone, Debug)]
pub struct InjectionSettings {
    /// `INJECT_ENABLED`: whether pods are injected. Default true.
    pub enabled: bool,
    /// The directory with the files `config` and `values`, which take precedence over the
    /// ConfigMap. Default `./var/lib/istio/inject`.
    pub folder: PathBuf,
    /// `ENABLE_NATIVE_SIDECARS`.
    pub native_sidecars: NativeSidecars,
    /// `COMPLIANCE_POLICY`.
    pub compliance_policy: String,
    /// Variables that templates may read.
    pub environment: BTreeMap<String, String>,
    /// `PLATFORM` is `openshift`.
    pub openshift: bool,
}

impl Default for InjectionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            folder: PathBuf::from("./var/lib/istio/inject"),
            native_sidecars: NativeSidecars::Auto,
            compliance_policy: String::new(),
            environment: BTreeMap::new(),
            openshift: false,
        }
    }
}

/// A snapshot of the mesh, as far as the injector depends on it.
pub trait MeshSnapshot {
    /// Mesh config, merged with the defaults.
    fn mesh(&self) -> &MeshConfig;

    /// The objects of the cluster that configures the mesh.
    fn objects(&self) -> &Objects;

    /// The objects of all clusters by name, remote clusters included.
    fn clusters(&self) -> impl Iterator<Item = (&ClusterId, &Objects)>;
}
