//! The object that a command is about.

use anyhow::Error;
use clap::Args;

use navarch_answers::proposal::{kind_of, object_ref};

/// Which object a command is about.
#[derive(Args, Debug)]
pub(super) struct ObjectArguments {
    /// Kind of the object, as in kubectl
    kind: String,
    /// Name of the object
    name: String,
    /// Namespace of the object
    #[arg(short = 'n', long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
}

impl ObjectArguments {
    /// The object in the notation of the debug API.
    ///
    /// # Errors
    /// If the kind is unknown, or a name invalid.
    pub(super) fn path(&self) -> anyhow::Result<String> {
        object_path(&self.kind, &self.namespace, &self.name)
    }
}

/// An object in the notation of the debug API.
///
/// # Errors
/// If the kind is unknown, or a name invalid.
pub(super) fn object_path(kind: &str, namespace: &str, name: &str) -> anyhow::Result<String> {
    let kind = kind_of(kind).map_err(Error::msg)?;
    let path = format!("{}/{namespace}/{name}", kind.as_str());
    object_ref(&path).map_err(Error::msg)?;
    Ok(path)
}
