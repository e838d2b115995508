//! The engine's types: what resources are computed from, and for whom.

use super::{Translator, View};
use crate::attr::{Attr, AttrValue};
use crate::context::PushContext;
use crate::fact::FactKey;
use crate::notice::{Notice, Unavailable};
use crate::proxy::Proxy;
use crate::query::Query;
use crate::resource::{Collection, ResourceType};
use navarch_engine::{Computes, Inputs};

/// The inputs of the control plane.
pub(crate) enum MeshInputs {}

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

/// Each query has its own `compute`.
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
