//! The memory of names that a client subscribes to, which is charged to it.
//!
//! An Envoy that comes back has the clusters and endpoints of its earlier stream. With a learned scope
//! all of them are kept as names, in a set that no other stream has. Most are of services of the mesh:
//! the engine has their resources anyway, and their names cost less than those that a client invents.
//! The registry is looked at for the first set of names alone, in proportion to its size; later sets
//! have the names of earlier ones.

use std::sync::Arc;

use tonic::Status;

use super::Stream;
use crate::client::ChargedNames;
use crate::session::diff::Names;
use crate::session::initial_resource_versions::InitialVersions;
use crate::session::subscription::SERVICE_CLUSTER;
use navarch_push::context::PushContext;
use navarch_push::engine::Interest;
use navarch_push::resource::ResourceType;

/// Bytes of a name of which it is unknown whether the client has the resource, in the sets of its
/// session: between the 24 to 40 of one that is to be sent again, and the 96 of one that is withheld.
/// An Envoy with the state of the world has all its names among the former while it rejects one.
const UNCERTAIN_NAME: usize = 48;

/// The memory charges of names of one type.
#[derive(Debug, Default)]
pub(super) struct ChargesOfType {
    /// What the subscription costs; `None` without names.
    watched: Option<Arc<ChargedNames>>,
    /// The `initial_resource_versions`, until the first response.
    initial_versions: Option<Arc<ChargedNames>>,
}

impl ChargesOfType {
    /// The client got its first response: its `initial_resource_versions` are no longer held.
    pub(super) fn forget_initial_versions(&mut self) {
        self.initial_versions = None;
    }
}

impl Stream {
    /// Charges the client for subscribed names of a type, and for its `initial_resource_versions`.
    ///
    /// # Errors
    /// If its share of the memory is used up.
    pub(super) async fn charge_for_names(
        &mut self,
        resource_type: ResourceType,
        interest: &Interest,
    ) -> Result<(), Status> {
        let initial_versions = self
            .connection
            .session
            .lock()
            .initial_versions(resource_type)
            .cloned();
        let names = &interest.names;
        let watched = if names.is_empty() {
            None
        } else {
            let shared = self
                .shared_names(resource_type, names, initial_versions.as_deref())
                .await?;
            let is_proved = self.connection.proxy.identity.is_some();
            Some(self.client.charge_for_names(names, is_proved, &shared)?)
        };

        let charges = self.names.entry(resource_type).or_default();
        charges.watched = watched;
        charges.initial_versions = initial_versions
            .map(|initial_versions| self.client.charge_for_initial_versions(&initial_versions))
            .transpose()?;
        Ok(())
    }

    /// Charges the client for the names of resources that it has rejected, or may not have. A client that
    /// rejects all of what it gets has as many of them as there are resources in the mesh.
    ///
    /// # Errors
    /// If its share of the memory is used up.
    pub(super) fn charge_for_uncertain_names(&mut self) -> Result<(), Status> {
        let names = self.connection.session.lock().uncertain_names();
        let bytes = names * UNCERTAIN_NAME;
        self.client
            .replace_part(&mut self.paid, &mut self.uncertain, bytes)
    }

    /// Those of subscribed names that services of the mesh have: of the set that is charged now, or, if
    /// it is the first one of a client that keeps what it has, by the registry.
    async fn shared_names(
        &self,
        resource_type: ResourceType,
        names: &Names,
        initial_versions: Option<&InitialVersions>,
    ) -> Result<Names, Status> {
        let charged = self.names.get(&resource_type);
        if let Some(watched) = charged.and_then(|charges| charges.watched.as_ref()) {
            return Ok(watched.shared().clone());
        }

        let is_of_services = matches!(
            resource_type,
            ResourceType::Cluster | ResourceType::Endpoint
        );
        let proxy = &self.connection.proxy;
        let keeps_names = initial_versions.is_some() || proxy.has_learned_scope;
        let is_needed = is_of_services && keeps_names && proxy.identity.is_some();
        if !is_needed || self.client.is_charged(names) {
            return Ok(Names::default());
        }

        let bytes = names.iter().map(|name| name.as_str().len()).sum();
        let turn = self.client.acquire_large(bytes).await;
        let context = self.core.push.context();
        let names = names.clone();
        let (_, shared) = turn
            .work(move || names_of_services(&names, &context))
            .await?;
        Ok(shared)
    }
}

/// The names of clusters of services of the mesh. Those of subsets, which clients could invent, are left
/// out.
fn names_of_services(names: &Names, context: &PushContext) -> Names {
    let known = names.iter().filter(|name| {
        let parsed = host_and_port(name.as_str());
        parsed.is_some_and(|(host, port)| context.has_service_port(host, port))
    });
    Arc::new(known.cloned().collect())
}

/// Host and port of a service's cluster, if its name is written as the control plane writes it.
fn host_and_port(name: &str) -> Option<(&str, u16)> {
    let (digits, host) = name.strip_prefix(SERVICE_CLUSTER)?.split_once("||")?;
    let port: u16 = digits.parse().ok()?;
    (port.to_string() == digits).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use navarch_api::names::ResourceName;
    use navarch_push::testing::mesh_of;

    use super::*;

    #[test]
    fn names_of_services_are_known_and_invented_ones_are_not() {
        let service = "
apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
";
        let state = mesh_of(service);
        let host = "reviews.shop.svc.cluster.local";
        let known = ResourceName::new(format!("outbound|80||{host}"));
        let names = [
            known.as_str().to_owned(),
            format!("outbound|81||{host}"),
            format!("outbound|080||{host}"),
            format!("outbound|80|v1|{host}"),
            format!("inbound|80||{host}"),
            "outbound|80||none.example".to_owned(),
            "outbound|80||".to_owned(),
            "x".to_owned(),
        ];
        let names: Names = Arc::new(names.iter().map(ResourceName::new).collect());
        let found = names_of_services(&names, &state.context());
        assert_eq!(found.iter().collect::<Vec<_>>(), [&known]);
    }
}
