//! Why an injector cannot be configured, and why a pod is refused.

use navarch_api::text_error::TextError;

/// Why a configuration is refused. The one before it stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The chart's values cannot be read.
    #[error("values: {0}")]
    Values(String),
    /// The injection config cannot be read.
    #[error("config: {0}")]
    Config(String),
    /// A template cannot be parsed.
    #[error("config: template {name:?}: {reason}")]
    Template {
        /// The template's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why a pod is refused rather than injected.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The request holds no pod.
    #[error("the object is not a Pod: {0}")]
    NotAPod(String),
    /// An annotation's value is not good.
    #[error("annotation {name}: {reason}; its value is {value:?}")]
    Annotation {
        /// The annotation.
        name: String,
        /// Its value, shortened.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The pod asks for a template that nobody has.
    #[error("annotation inject.istio.io/templates names {name:?}, which is not one of: {}", known.join(", "))]
    UnknownTemplate {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A template failed on this pod.
    #[error("template {name:?} failed: {reason}")]
    Template {
        /// The template's name.
        name: String,
        /// What went wrong.
        reason: String,
    },
    /// The proxy config of the annotation cannot be applied.
    #[error("annotation proxy.istio.io/config: {0}")]
    ProxyConfig(#[from] TextError),
    /// Metrics cannot be merged as the pod's annotations want.
    #[error("prometheus: {0}")]
    Prometheus(String),
    /// What was to be added does not fit onto the pod.
    #[error("failed to merge the pod with the injected template: {0}")]
    Merge(String),
}
