//! The requests that the client of a stream is authorized to send.

use std::net::IpAddr;

use tonic::Status;

use super::{Stream, push_ended};
use crate::node::Served;
use crate::session::discovery_request::{DeltaRequest, Request, not_served};
use navarch_api::mcp::MESH_CONFIG_URL;
use navarch_api::names::ResourceName;
use navarch_api::object::Kind;
use navarch_proto::any::TYPE_URL_PREFIX;
use navarch_push::mesh_state::Change;
use navarch_push::proxy::ProxyKind;
use navarch_push::resource::ResourceType;
use navarch_security::rules;

/// Any type of objects: all have the same access rules.
const ANY_OBJECT: ResourceType = ResourceType::Object(Kind::VirtualService);

impl Stream {
    /// Checks whether a request is allowed. An empty response could be taken for an empty mesh, so
    /// others are rejected.
    ///
    /// # Errors
    /// The status with which the stream ends.
    pub(super) fn check_request(&self, request: &Request) -> Result<(), Status> {
        let resource_type = if let Request::Unserved { url } = request
            && !url.starts_with(TYPE_URL_PREFIX)
        {
            // istiod's clients request MeshConfig first, and do not use it. Those of other versions
            // request kinds that are unknown here.
            if url != MESH_CONFIG_URL
                && self.connection.proxy.meta("GENERATOR").as_deref() != Some("api")
            {
                return Err(not_served(url));
            }
            Some(ANY_OBJECT)
        } else {
            request.resource_type()
        };

        match resource_type {
            Some(resource_type)
                if resource_type.is_ambient() && self.core.served < Served::Ambient =>
            {
                let is_served = if let Request::Delta(request) = request {
                    self.subscribes_to_peers(request)
                } else {
                    false
                };
                if is_served {
                    Ok(())
                } else {
                    Err(not_served(resource_type.type_url()))
                }
            }
            Some(resource_type @ ResourceType::Object(_)) if !self.may_subscribe(resource_type) => {
                Err(self.objects_denied())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the client is a proxy whose agent may look up its peers.
    fn is_envoy(&self) -> bool {
        match self.connection.proxy.kind {
            ProxyKind::Sidecar | ProxyKind::Router | ProxyKind::Waypoint => true,
            ProxyKind::Ztunnel | ProxyKind::AgentGateway => false,
        }
    }

    /// Whether a proxy subscribes to workloads by address, which is served even without ambient
    /// mode. A wildcard or names of workloads are not.
    fn subscribes_to_peers(&self, request: &DeltaRequest) -> bool {
        let is_address = |name: &ResourceName| {
            name.as_str()
                .split_once('/')
                .is_some_and(|(_, address)| address.parse::<IpAddr>().is_ok())
        };

        let DeltaRequest {
            resource_type,
            quoted: _,
            subscribe,
            unsubscribe: _,
            initial_versions,
        } = request;

        // A first request without names is a wildcard subscription.
        let names_some = !subscribe.names.is_empty()
            || self
                .connection
                .session
                .lock()
                .watches
                .contains_key(resource_type);
        self.is_envoy()
            && *resource_type == ResourceType::Workload
            && names_some
            && !subscribe.star
            && initial_versions.is_empty()
            && subscribe.names.iter().all(is_address)
    }

    /// Prepares the data of a type before the client subscribes to it.
    ///
    /// # Errors
    /// If the push thread has ended.
    pub(super) async fn prepare(&mut self, resource_type: ResourceType) -> Result<(), Status> {
        if resource_type == ResourceType::Secret {
            self.request_secret_access().await;
        } else if resource_type == ResourceType::Workload {
            self.have_peers_found().await?;
        }
        Ok(())
    }

    /// Enables peer lookup by address in the push thread, which is off until the first proxy needs
    /// it: completely without ambient mode, for remote clusters with it.
    async fn have_peers_found(&self) -> Result<(), Status> {
        if !self.is_envoy() || self.core.push.context().finds_peers {
            return Ok(());
        }
        self.core
            .push
            .change(vec![Change::FindPeers])
            .await
            .map_err(push_ended)
    }

    /// Whether the client may subscribe to a type.
    pub(super) fn may_subscribe(&self, resource_type: ResourceType) -> bool {
        let identity = self.connection.proxy.identity.as_ref();
        if !matches!(resource_type, ResourceType::Object(_)) {
            return rules::may_subscribe(resource_type.short_name(), identity, "");
        }
        self.core.objects_for_all
            || rules::may_subscribe(resource_type.short_name(), identity, &self.root_namespace())
    }

    /// The namespace whose identities are control planes.
    fn root_namespace(&self) -> String {
        self.core.push.context().mesh.config.root_namespace.clone()
    }

    /// The status of a client that may not subscribe to Istio's objects.
    fn objects_denied(&self) -> Status {
        self.client.count_rejection("configuration");
        match &self.connection.proxy.identity {
            None => Status::unauthenticated(
                "configuration is only served to authenticated control planes in the root namespace: connect to port 15012 \
                 with a certificate or a token of that namespace",
            ),
            Some(identity) => Status::permission_denied(format!(
                "configuration is only served to control planes in the root namespace {}, but the caller is in {}",
                self.root_namespace(),
                identity.namespace
            )),
        }
    }
}
