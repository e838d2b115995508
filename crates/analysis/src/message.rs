//! One finding about one object.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::messages::{Level, MessageType};
use crate::parameters::{Parameter, fill};
use crate::resource::Resource;

/// Base URL of the documentation of codes.
pub const EXPLANATIONS: &str = "https://istio.io/v1.32/docs/reference/config/analysis";

/// A finding.
#[derive(Clone, Debug)]
pub struct Message {
    /// Has the code, such as `IST0101`, and the severity; its template with parameters is `text`.
    pub kind: &'static MessageType,
    /// The object.
    pub resource: Arc<Resource>,
    /// The parameters of the message.
    pub text: String,
    /// The line of the invalid field, if known.
    line: Option<usize>,
    /// Whether the cluster is named that the object is of.
    names_cluster: bool,
}

impl Message {
    /// A message about an object.
    pub(crate) fn new(
        kind: &'static MessageType,
        resource: &Arc<Resource>,
        parameters: &[Parameter],
    ) -> Self {
        let text = fill(kind.template, parameters);
        Self {
            kind,
            resource: Arc::clone(resource),
            text,
            line: None,
            names_cluster: false,
        }
    }

    /// The message with the object's cluster, for several clusters.
    #[must_use]
    pub fn with_cluster(self) -> Self {
        Self {
            names_cluster: true,
            ..self
        }
    }

    /// The message at a field such as `spec.gateways[0]`, if it is a scalar with a known line.
    pub(crate) fn at(mut self, field: &str) -> Self {
        self.line = self.resource.line_of(field);
        self
    }

    /// How bad it is.
    #[must_use]
    pub fn level(&self) -> Level {
        self.kind.level
    }

    /// The object as users know it, such as `VirtualService shop/reviews`.
    #[must_use]
    pub fn origin(&self) -> String {
        self.resource.friendly_name()
    }

    /// File and line, where the object is of a file.
    #[must_use]
    pub fn reference(&self) -> Option<String> {
        self.resource.reference(self.line)
    }

    /// The documentation of the code.
    #[must_use]
    pub fn documentation_url(&self) -> String {
        format!("{EXPLANATIONS}/{}/", self.kind.code.to_ascii_lowercase())
    }

    /// The message for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut members = Map::new();
        if self.names_cluster {
            members.insert("cluster".to_owned(), self.resource.cluster_name().into());
        }
        members.insert("code".to_owned(), self.kind.code.into());
        members.insert(
            "documentationUrl".to_owned(),
            self.documentation_url().into(),
        );
        members.insert("level".to_owned(), self.level().to_string().into());
        members.insert("message".to_owned(), self.text.clone().into());
        members.insert("origin".to_owned(), self.origin().into());
        if let Some(reference) = self.reference() {
            members.insert("reference".to_owned(), reference.into());
        }
        Value::Object(members)
    }

    /// The sort key of messages: severity, then code and object.
    fn order(&self) -> (Level, &'static str, [&str; 3], String) {
        let object = [
            self.resource.kind.as_str(),
            self.resource.name.as_str(),
            self.resource.namespace.as_str(),
        ];
        (self.level(), self.kind.code, object, self.to_string())
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.level(), self.kind.code)?;
        if self.names_cluster {
            write!(f, " [cluster-{}]", self.resource.cluster_name())?;
        }
        write!(f, " ({}", self.origin())?;
        if let Some(reference) = self.reference() {
            write!(f, " {reference}")?;
        }
        write!(f, ") {}", self.text)
    }
}

/// Sorts messages, and leaves each once.
pub(crate) fn sort(messages: &mut Vec<Message>) {
    messages.sort_by_cached_key(|message| {
        let (level, code, object, text) = message.order();
        (level, code, object.map(str::to_owned), text)
    });
    messages.dedup_by(|one, other| {
        one.resource.cluster == other.resource.cluster && one.to_string() == other.to_string()
    });
}
