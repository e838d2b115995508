//! What conversions depend on besides the objects: settings, mesh config and networks.

use std::sync::Arc;

use super::model::Labels;
use super::networks::NetworkFinder;
use navarch_api::mesh::{MeshConfig, MeshNetworks, ServiceEntryVisibility};
use navarch_api::names::Hostname;
use navarch_api::object::NamespacedName;
use navarch_api::settings::Settings;
use navarch_store::Objects;

/// Settings, and the parts of mesh config and networks that reach services and endpoints.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct World {
    /// What was given at start.
    pub settings: Settings,
    /// `trustDomain` of mesh config.
    pub trust_domain: Arc<str>,
    /// `defaultServiceExportTo` of mesh config. What `.` means in it depends on the service.
    pub default_export: Vec<String>,
    /// `serviceEntryVisibility` of mesh config.
    pub visibility: Option<ServiceEntryVisibility>,
    /// Mesh networks.
    pub networks: MeshNetworks,
    /// Finds networks, by mesh networks and the system namespace.
    pub finder: NetworkFinder,
}

impl World {
    /// Gathers what counts.
    #[must_use]
    pub(super) fn new(settings: Settings, mesh: &MeshConfig, networks: &MeshNetworks, objects: &Objects) -> Self {
        Self {
            trust_domain: Arc::from(mesh.trust_domain.as_str()),
            default_export: mesh.default_service_export_to.clone(),
            visibility: mesh.service_entry_visibility.clone(),
            networks: networks.clone(),
            finder: NetworkFinder::new(&settings.cluster_id, networks, Self::system_labels(&settings, objects)),
            settings,
        }
    }

    /// The same with the system namespace as it is now.
    #[must_use]
    pub(super) fn moved_to(&self, objects: &Objects) -> Self {
        let system = Self::system_labels(&self.settings, objects);
        let finder = NetworkFinder::new(&self.settings.cluster_id, &self.networks, system);
        Self { finder, ..self.clone() }
    }

    /// The labels of the namespace in which the control plane lives.
    fn system_labels<'a>(settings: &Settings, objects: &'a Objects) -> Option<&'a Labels> {
        let name = NamespacedName::new("", settings.system_namespace.as_str());
        objects.namespaces.get(&name).map(|namespace| &namespace.meta.labels)
    }

    /// The host of a Kubernetes Service.
    #[must_use]
    pub(super) fn host_of(&self, service: &NamespacedName) -> Hostname {
        Hostname::new(format!("{}.{}.svc.{}", service.name, service.namespace, self.settings.domain_suffix))
    }
}
