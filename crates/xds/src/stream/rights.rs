//! What the client of a stream may ask for.

use tonic::Status;

use super::Stream;
use crate::node::Served;
use crate::session::discovery_request::{Request, not_served};
use navarch_api::mcp::MESH_CONFIG_URL;
use navarch_api::object::Kind;
use navarch_proto::any::TYPE_URL_PREFIX;
use navarch_push::resource::ResourceType;
use navarch_security::rules;

/// A type of objects, for the rights that all of them have in common.
const ANY_OBJECT: ResourceType = ResourceType::Object(Kind::VirtualService);

impl Stream {
    /// Lets a request pass, or not: where an empty answer would be taken for an empty mesh there must be none.
    ///
    /// # Errors
    /// The status with which the stream ends.
    pub(super) fn may_ask(&self, request: &Request) -> Result<(), Status> {
        let kind = if let Request::Unserved { url } = request
            && !url.starts_with(TYPE_URL_PREFIX)
        {
            // istiod's clients ask for MeshConfig first, and use nothing of it. Those of another version know other kinds.
            if url != MESH_CONFIG_URL && self.connection.proxy.meta("GENERATOR").as_deref() != Some("api") {
                return Err(not_served(url));
            }
            Some(ANY_OBJECT)
        } else {
            request.kind()
        };
        match kind {
            Some(kind) if kind.is_ambient() && self.core.served < Served::Ambient => Err(not_served(kind.type_url())),
            Some(kind @ ResourceType::Object(_)) if !self.may_subscribe(kind) => Err(self.objects_refused()),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the client may have resources of a type.
    pub(super) fn may_subscribe(&self, kind: ResourceType) -> bool {
        let identity = self.connection.proxy.identity.as_ref();
        if !matches!(kind, ResourceType::Object(_)) {
            return rules::may_subscribe(kind.short_name(), identity, "");
        }
        self.core.objects_for_all || rules::may_subscribe(kind.short_name(), identity, &self.root_namespace())
    }

    /// The namespace whose identities are control planes.
    fn root_namespace(&self) -> String {
        self.core.push.context().mesh.config.root_namespace.clone()
    }

    /// How the stream of a client ends that may not have Istio's objects.
    fn objects_refused(&self) -> Status {
        self.client.turned_away("configuration");
        match &self.connection.proxy.identity {
            None => Status::unauthenticated(
                "configuration is for authenticated control planes of the root namespace: ask on 15012, with a certificate \
                 or a token of that namespace",
            ),
            Some(identity) => Status::permission_denied(format!(
                "configuration is for control planes of the root namespace {}, the caller is of {}",
                self.root_namespace(),
                identity.namespace
            )),
        }
    }
}
