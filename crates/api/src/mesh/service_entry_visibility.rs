//! Who may see which ServiceEntries.

use serde::{Deserialize, Serialize};

use super::label_selector::LabelSelector;
use crate::istio::wire_enum::wire_enum;

/// Who may see which ServiceEntries, whatever these say themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryVisibility {
    /// For ServiceEntries that no policy matches.
    pub default_visibility: Visibility,
    /// Whether it holds for sidecars and gateways too, and not for ambient mode alone.
    pub apply_to_sidecars: bool,
    /// The policies; the first that matches holds.
    pub policies: Vec<ServiceEntryVisibilityPolicy>,
}

wire_enum! {
    /// How far an object is seen.
    Visibility {
        /// As `PUBLIC`.
        Unspecified = 0, "VISIBILITY_UNSPECIFIED";
        /// Nowhere: no proxy is configured for it.
        None = 1, "NONE";
        /// In its own namespace.
        Namespace = 2, "NAMESPACE";
        /// By every proxy of this control plane.
        Public = 3, "PUBLIC";
    }
}

/// How far some ServiceEntries are seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryVisibilityPolicy {
    /// How far.
    pub visibility: Visibility,
    /// Which ones: those that all rules match.
    pub matching_rules: Vec<ServiceEntryMatchRule>,
}

/// One rule about ServiceEntries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceEntryMatchRule {
    /// The labels of its namespace.
    pub namespace_selector: Option<LabelSelector>,
}
