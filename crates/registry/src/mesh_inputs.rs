//! The inputs of conversions besides objects: settings, mesh config and networks.

use std::sync::Arc;

use super::location::Locations;
use super::model::{Labels, ServiceKey};
use super::networks::NetworkFinder;
use navarch_api::cluster_settings::McsMode;
use navarch_api::mcs::CLUSTER_SET_DOMAIN;
use navarch_api::mesh::{MeshConfig, MeshNetworks, ServiceEntryVisibility};
use navarch_api::names::{ClusterId, Hostname};
use navarch_api::object::NamespacedName;
use navarch_api::settings::Settings;
use navarch_store::Objects;

/// The kind of cluster whose objects a registry reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The configuration cluster.
    Config,
    /// A remote cluster.
    Remote,
}

/// Settings, and the parts of mesh config and networks that affect services and endpoints.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MeshInputs {
    /// The settings at startup, with the name of the registry's own cluster.
    pub settings: Settings,
    /// Whether that cluster is the configuration cluster.
    pub role: Role,
    /// `trustDomain` of the cluster's mesh config.
    pub trust_domain: Arc<str>,
    /// `trustDomain` of the mesh config in force.
    mesh_trust_domain: Arc<str>,
    /// `defaultServiceExportTo` of mesh config. What `.` means in it depends on the service.
    pub default_export: Vec<String>,
    /// `serviceEntryVisibility` of mesh config.
    pub visibility: Option<ServiceEntryVisibility>,
    pub networks: MeshNetworks,
    /// Finds networks, by mesh networks and the system namespace.
    pub finder: NetworkFinder,
    /// Where workloads run.
    pub locations: Locations,
}

impl MeshInputs {
    /// The inputs for the configuration cluster.
    #[must_use]
    pub(super) fn new(
        settings: Settings,
        mesh: &MeshConfig,
        networks: &MeshNetworks,
        objects: &Objects,
    ) -> Self {
        let trust_domain: Arc<str> = Arc::from(mesh.trust_domain.as_str());
        Self {
            role: Role::Config,
            trust_domain: trust_domain.clone(),
            mesh_trust_domain: trust_domain,
            default_export: mesh.default_service_export_to.clone(),
            visibility: mesh.service_entry_visibility.clone(),
            networks: networks.clone(),
            finder: NetworkFinder::new(
                &settings.cluster_id,
                networks,
                Self::system_labels(&settings, objects),
            ),
            locations: Locations::default(),
            settings,
        }
    }

    /// The inputs for another cluster with these objects. Only the trust domain of its own mesh
    /// config is used (Istio's `NewRestrictedConfigWatcher`).
    #[must_use]
    pub(super) fn of_remote(&self, cluster: &ClusterId, objects: &Objects) -> Self {
        let settings = Settings {
            cluster_id: cluster.clone(),
            ..self.settings.clone()
        };
        Self {
            settings,
            role: Role::Remote,
            ..self.clone()
        }
        .moved_to(objects)
    }

    /// The same with the current system namespace and, in a remote cluster, the current mesh
    /// config.
    #[must_use]
    pub(super) fn moved_to(&self, objects: &Objects) -> Self {
        let system = Self::system_labels(&self.settings, objects);
        let finder = NetworkFinder::new(&self.settings.cluster_id, &self.networks, system);
        let trust_domain = match self.role {
            Role::Config => None,
            Role::Remote => self.trust_domain_in(objects),
        };
        let trust_domain = trust_domain.unwrap_or_else(|| self.mesh_trust_domain.clone());
        Self {
            finder,
            trust_domain,
            ..self.clone()
        }
    }

    /// The name of the ConfigMap with the cluster's mesh config.
    #[must_use]
    pub(super) fn mesh_config_map(&self) -> NamespacedName {
        NamespacedName::new(
            self.settings.system_namespace.as_str(),
            &self.settings.clusters.mesh_config_map(),
        )
    }

    /// The trust domain in the cluster's own mesh config, if it has one.
    fn trust_domain_in(&self, objects: &Objects) -> Option<Arc<str>> {
        let map = objects.config_maps.get(&self.mesh_config_map())?;
        let config = MeshConfig::istio_defaults()
            .apply(map.spec.text("mesh")?)
            .ok()?;
        Some(Arc::from(config.value.trust_domain.as_str()))
            .filter(|domain: &Arc<str>| !domain.is_empty())
    }

    /// The labels of the namespace of the control plane.
    fn system_labels<'a>(settings: &Settings, objects: &'a Objects) -> Option<&'a Labels> {
        let name = NamespacedName::new("", settings.system_namespace.as_str());
        objects
            .namespaces
            .get(&name)
            .map(|namespace| &namespace.meta.labels)
    }

    /// The host of a Kubernetes Service.
    #[must_use]
    pub(super) fn host_of(&self, service: &NamespacedName) -> Hostname {
        Hostname::new(format!(
            "{}.{}.svc.{}",
            service.name, service.namespace, self.settings.domain_suffix
        ))
    }

    /// The `clusterset.local` service of a Kubernetes Service, if enabled.
    #[must_use]
    pub(super) fn cluster_set_key(&self, service: &NamespacedName) -> Option<ServiceKey> {
        (self.settings.clusters.mcs >= McsMode::Hosts).then(|| cluster_set_key(service))
    }
}

/// The service in `clusterset.local` of a Kubernetes Service.
#[must_use]
pub(super) fn cluster_set_key(service: &NamespacedName) -> ServiceKey {
    let hostname = Hostname::new(format!(
        "{}.{}.svc.{CLUSTER_SET_DOMAIN}",
        service.name, service.namespace
    ));
    ServiceKey {
        namespace: service.namespace.clone(),
        hostname,
    }
}

/// The Kubernetes Service behind a service in `clusterset.local`; `None` for other services.
#[must_use]
pub(super) fn service_of_cluster_set(key: &ServiceKey) -> Option<NamespacedName> {
    let rest = key
        .hostname
        .as_str()
        .strip_suffix(CLUSTER_SET_DOMAIN)?
        .strip_suffix(".svc.")?;
    let name = rest
        .strip_suffix(key.namespace.as_str())?
        .strip_suffix('.')?;
    Some(NamespacedName::new(key.namespace.as_str(), name))
}
