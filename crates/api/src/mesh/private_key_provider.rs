//! Hardware that handles private keys for Envoy.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// The hardware. Exactly one field is meant to be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrivateKeyProvider {
    /// Intel's CryptoMB instructions.
    pub cryptomb: Option<CryptoMb>,
    /// Intel's QuickAssist.
    pub qat: Option<Qat>,
}

/// Intel's CryptoMB instructions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CryptoMb {
    /// How long a queue that is not full waits.
    pub poll_delay: Option<Duration>,
    /// Whether Envoy does without where the hardware lacks; `None` is no.
    pub fallback: Option<bool>,
}

/// Intel's QuickAssist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Qat {
    /// How long to wait between looks at the hardware.
    pub poll_delay: Option<Duration>,
    /// Whether Envoy does without where the hardware lacks; `None` is no.
    pub fallback: Option<bool>,
}
