//! The engine's types: what resources are computed from, and for whom.

use super::attr::{Attr, AttrValue};
use super::context::PushContext;
use super::fact::FactKey;
use super::notice::{Notice, Unavailable};
use super::proxy::Proxy;
use super::query::Query;
use super::resource::{Collection, ResourceType};
use super::view::{Translator, View};
use navarch_engine::{Computes, Inputs};

/// The inputs of the control plane.
pub(super) enum MeshInputs {}

impl Inputs for MeshInputs {
    type Snapshot = PushContext;
    type Fact = FactKey;
    type Subscriber = Proxy;
    type Attribute = Attr;
    type AttributeValue = AttrValue;
    type Topic = ResourceType;
    type Published = Collection;
    type Notice = Notice;
    type Environment = dyn Translator;

    fn attribute(proxy: &Proxy, attribute: &Attr) -> AttrValue {
        attribute.of(proxy)
    }
}

/// Each query says itself how it is computed.
impl<Q: Query> Computes<Q> for MeshInputs {
    type Value = Q::Value;

    const IS_GATE: bool = Q::IS_GATE;

    fn compute(query: &Q, view: &navarch_engine::View<'_, Self>) -> Q::Value {
        query.compute(&View(*view))
    }

    fn renew(query: &Q, previous: &Q::Value, view: &navarch_engine::View<'_, Self>) -> Q::Value {
        query.renew(previous, &View(*view))
    }

    fn fallback(query: &Q, previous: Option<&Q::Value>) -> Option<Q::Value> {
        query.fallback(previous)
    }
}

impl navarch_engine::Notice for Notice {
    type Occurrence = Unavailable;

    fn occurrence(&self) -> Option<Unavailable> {
        match self {
            Self::Failed { what, .. } => Some(*what),
            Self::Subject { .. } | Self::Patched { .. } => None,
        }
    }
}
