//! The visibility of ServiceEntries.

use serde::{Deserialize, Serialize};

use super::label_selector::LabelSelector;
use crate::istio::wire_enum::wire_enum;

/// The visibility of ServiceEntries, regardless of their own settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryVisibility {
    /// The visibility of ServiceEntries that match no policy.
    pub default_visibility: Visibility,
    /// Whether the visibility also applies to sidecars and gateways, not only to ambient mode.
    pub apply_to_sidecars: bool,
    /// The policies; the first match applies.
    pub policies: Vec<ServiceEntryVisibilityPolicy>,
}

wire_enum! {
    /// The visibility of an object.
    Visibility {
        /// The same as `PUBLIC`.
        Unspecified = 0, "VISIBILITY_UNSPECIFIED";
        /// No proxy receives the object.
        None = 1, "NONE";
        /// Proxies of the same namespace receive the object.
        Namespace = 2, "NAMESPACE";
        /// All proxies of this control plane receive the object.
        Public = 3, "PUBLIC";
    }
}

/// The visibility of the ServiceEntries that match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryVisibilityPolicy {
    /// The visibility of matching ServiceEntries.
    pub visibility: Visibility,
    /// The rules, all of which must match.
    pub matching_rules: Vec<ServiceEntryMatchRule>,
}

/// A condition on ServiceEntries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryMatchRule {
    /// Selects the namespaces of the ServiceEntries by label.
    pub namespace_selector: Option<LabelSelector>,
}
