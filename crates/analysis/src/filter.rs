//! Which messages are wanted.

use std::str::FromStr;

use crate::glob;
use crate::message::Message;

/// The annotation that lists suppressed codes of its object.
const SUPPRESS: &str = "galley.istio.io/analyze-suppress";

/// A code that is not wanted of some objects: `IST0103=Pod *.shop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    /// Such as `IST0103`.
    pub code: String,
    /// The objects, `*` standing for anything.
    pub objects: String,
}

impl FromStr for Suppression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((code, objects)) if !objects.contains('=') => Ok(Self {
                code: code.to_owned(),
                objects: objects.to_owned(),
            }),
            Some(_) | None => Err("is not CODE=OBJECT, such as \"IST0103=Pod shop/*\"".to_owned()),
        }
    }
}

/// Selects messages.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The namespace whose objects are reported; empty means all. Cluster-scoped objects always
    /// are.
    pub namespace: String,
    /// Suppressed messages.
    pub suppressions: Vec<Suppression>,
}

impl Filter {
    /// Whether a message is wanted.
    pub(crate) fn includes(&self, message: &Message) -> bool {
        let resource = &message.resource;
        let namespace = resource.owning_namespace();
        if !self.namespace.is_empty() && !namespace.is_empty() && namespace != self.namespace {
            return false;
        }
        let code = message.kind.code;
        let mut suppressed = resource.annotation(SUPPRESS).unwrap_or_default().split(',');
        if suppressed.any(|unwanted| unwanted == "*" || unwanted == code) {
            return false;
        }
        let name = resource.friendly_name();
        !self
            .suppressions
            .iter()
            .any(|unwanted| unwanted.code == code && glob::matches(&unwanted.objects, &name))
    }
}
