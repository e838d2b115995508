//! Navarch's own resources for a proxy, from an engine in memory on a snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_ambient::AmbientTranslator;
use navarch_api::names::ResourceName;
use navarch_api::object::Kind;
use navarch_envoy::EnvoyTranslator;
use navarch_proto::json::{Codec, JsonError};
use navarch_push::context::PushContext;
use navarch_push::engine::{Engine, Interest, ProxyId, PushCause, Sink};
use navarch_push::fact::FactKey;
use navarch_push::proxy::Proxy;
use navarch_push::resource::{Collection, ResourceType};
use serde_json::Value;

use crate::stream::to_json;
use crate::subscriptions::{ResourcesByType, names, types};

/// The stack size for translation, the same as that of the push thread: it nests deeply.
pub const STACK: usize = 16 << 20;
/// The maximum number of objects that are listed for a resource.
const MAX_INPUTS: usize = 8;
/// The kinds that say where something runs, not how requests reach it: almost every resource is
/// built from them.
const NOT_LISTED: [Kind; 6] = [
    Kind::Namespace,
    Kind::Node,
    Kind::EndpointSlice,
    Kind::Pod,
    Kind::ConfigMap,
    Kind::ServiceAccount,
];

/// An engine on a snapshot.
#[derive(Debug)]
pub struct Own {
    engine: Engine,
    codec: Codec,
}

/// Discards pushes: collections are read from the engine.
#[derive(Debug)]
struct NullSink;

impl Sink for NullSink {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

impl Own {
    /// An engine on a snapshot. Nothing is computed until a proxy asks.
    #[must_use]
    pub fn new(context: Arc<PushContext>, codec: Codec) -> Self {
        let translator = Arc::new(AmbientTranslator(EnvoyTranslator));
        Self {
            engine: Engine::new(context, translator),
            codec,
        }
    }

    /// Connects a proxy, which subscribes as to istiod, and returns what it gets.
    ///
    /// # Errors
    /// If a resource has a type without a JSON form.
    pub fn connect(&mut self, proxy: Proxy) -> Result<(ProxyId, ResourcesByType), JsonError> {
        let types = types(&proxy);
        let id = self.engine.connect(Arc::new(proxy), Arc::new(NullSink));
        let mut answers = ResourcesByType::new();

        for resource_type in types {
            if let Some(names) = names(resource_type, &answers) {
                let resources = self.subscribe(id, resource_type, &names)?;
                answers.insert(resource_type, resources);
            }
        }

        Ok((id, answers))
    }

    /// Removes a proxy.
    pub fn disconnect(&mut self, id: ProxyId) {
        self.engine.disconnect(id);
    }

    /// The objects that a resource of a proxy was built from, those read first; those that only say
    /// where something runs are left out.
    #[must_use]
    pub fn inputs(&self, id: ProxyId, resource_type: ResourceType, resource: &str) -> Vec<String> {
        let name = ResourceName::new(resource);
        let objects = &self.engine.context().objects;
        let facts = self.engine.provenance_in_order(id, resource_type, &name);

        let mut seen = BTreeSet::new();
        let mut inputs = Vec::new();
        for fact in facts {
            if let FactKey::Object(object) = fact
                && !NOT_LISTED.contains(&object.kind)
                && objects.contains(&object)
                && seen.insert(object.clone())
                && inputs.len() < MAX_INPUTS
            {
                inputs.push(object.to_string());
            }
        }
        inputs
    }

    /// Subscribes a proxy to names, or to everything if there are none.
    fn subscribe(
        &mut self,
        id: ProxyId,
        resource_type: ResourceType,
        names: &BTreeSet<String>,
    ) -> Result<Vec<Value>, JsonError> {
        let interest = Interest {
            wildcard: names.is_empty(),
            names: Arc::new(names.iter().map(ResourceName::new).collect()),
        };
        self.engine.subscribe(id, resource_type, interest);

        let Some(collection) = self.engine.published(id, resource_type) else {
            return Ok(Vec::new());
        };
        let resources = collection.resources.iter();
        resources
            .map(|resource| {
                let url = resource.resource_type.resource_url();
                let content = self.codec.any_to_json(url, &resource.body)?;
                Ok(to_json(resource_type, resource.name.as_str(), content))
            })
            .collect()
    }
}
