//! Why an injector's configuration is invalid, and why a pod is rejected.

use navarch_api::text_error::TextError;

/// Why a configuration is rejected. The previous configuration remains active.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The chart's values are invalid.
    #[error("values: {0}")]
    Values(String),
    /// The injection config is invalid.
    #[error("config: {0}")]
    Config(String),
    /// A template cannot be parsed.
    #[error("config: template {name:?}: {reason}")]
    Template {
        /// The template's name.
        name: String,
        /// The parse error.
        reason: String,
    },
}

/// Why a pod is rejected instead of injected.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The request contains no pod.
    #[error("the object is not a Pod: {0}")]
    NotAPod(String),
    /// The value of an annotation is invalid.
    #[error("annotation {name}: {reason}; its value is {value:?}")]
    Annotation {
        /// The annotation's name.
        name: String,
        /// The annotation's value, shortened.
        value: String,
        /// Why the value is invalid.
        reason: String,
    },
    /// The pod names an unknown template.
    #[error("annotation inject.istio.io/templates names {name:?}, which is not one of: {}", known.join(", "))]
    UnknownTemplate {
        /// The requested template.
        name: String,
        /// The known templates.
        known: Vec<String>,
    },
    /// Rendering a template failed for this pod.
    #[error("template {name:?} failed: {reason}")]
    Template {
        /// The template's name.
        name: String,
        /// The error of the template.
        reason: String,
    },
    /// The proxy config in the annotation is invalid.
    #[error("annotation proxy.istio.io/config: {0}")]
    ProxyConfig(#[from] TextError),
    /// The metrics annotations of the pod cannot be merged.
    #[error("prometheus: {0}")]
    Prometheus(String),
    /// The overlay cannot be merged into the pod.
    #[error("failed to merge the pod with the injected template: {0}")]
    Merge(String),
}
