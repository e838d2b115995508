//! A proposed change: objects to apply and to delete, and the validation of each before the change
//! is simulated.

use serde::{Deserialize, Serialize};

use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Decoded, Format, Outcome, decode_documents};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::rollout::requests_stages;
use navarch_api::validation::validate_any;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use navarch_store::Objects;
use navarch_webhook::verdict::{UNKNOWN, around};

/// The warning for the deletion of an object with a rollout annotation.
const DELETION_IN_STAGES: &str = "navarch.io/rollout: a deletion affects all proxies at once; to remove its effect in stages, edit the object first";

/// A proposed change, as sent to a control plane.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// Texts with objects, YAML or JSON.
    #[serde(default)]
    pub files: Vec<ProposedFile>,
    /// Objects to delete: `KIND/NAMESPACE/NAME`, without namespace for cluster-scoped kinds.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// One YAML file of a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposedFile {
    /// Its name, for messages.
    pub place: String,
    /// YAML documents.
    pub text: String,
}

/// The plan of one object of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPlan {
    /// File and line, or the argument of `--remove`.
    pub place: String,
    /// `Kind namespace/name`, as far as known.
    pub object: String,
    /// What applying the proposal does with the object; `Rejected` exactly if `errors` is not
    /// empty.
    pub action: Action,
    /// Validation errors.
    pub errors: Vec<String>,
    /// Validation warnings.
    pub warnings: Vec<String>,
}

/// The change of an object or a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// No object of this name is in the cluster, or the proxy does not have the resource yet.
    Added,
    /// The cluster has the object, or the proxy the resource, with other content.
    Changed,
    /// `--remove` names the object and it exists, or the proxy would lose the resource.
    Removed,
    /// Applying has no effect: the content is equal, or the object to remove does not exist.
    Unchanged,
    /// Rejected as invalid.
    #[serde(rename = "refused")]
    Rejected,
    /// Ignored: its kind is not supported.
    Ignored,
}

/// A proposal after parsing.
#[derive(Debug, Default)]
pub(super) struct ParsedProposal {
    pub(super) objects: Vec<ObjectPlan>,
    /// The valid part.
    pub(super) changes: Vec<Change>,
    /// The objects to add or replace, each with its index in `objects`.
    pub(super) put: Vec<(usize, AnyObject)>,
    /// The objects of the valid part.
    pub(super) names: Vec<ObjectRef>,
}

impl Proposal {
    /// Parses all objects, and determines the action of each relative to a snapshot.
    pub(super) fn read(&self, context: &PushContext) -> ParsedProposal {
        let mut read = ParsedProposal::default();
        for file in &self.files {
            let is_json = file.place.ends_with(".json");
            let format = if is_json { Format::Json } else { Format::Yaml };
            for decoded in decode_documents(&file.text, format) {
                read.document(&file.place, decoded, &context.objects);
            }
        }
        for wanted in &self.remove {
            read.removal(wanted, &context.objects);
        }
        read
    }
}

impl ParsedProposal {
    /// Adds a document.
    fn document(&mut self, file: &str, decoded: Decoded, objects: &Objects) {
        let mut plan = ObjectPlan {
            place: format!("{file}:{}", decoded.line),
            object: decoded.subject.to_string(),
            action: Action::Rejected,
            errors: Vec::new(),
            warnings: Vec::new(),
        };

        match decoded.outcome {
            Outcome::Ignored => plan.action = Action::Ignored,
            Outcome::Rejected(error) => plan.errors.push(error.to_string()),
            Outcome::Read {
                object,
                unknown_fields,
            } => {
                let verdict = validate_any(&object);
                plan.errors
                    .extend(verdict.errors.iter().map(ToString::to_string));
                plan.warnings
                    .extend(verdict.warnings.iter().map(ToString::to_string));
                plan.warnings.extend(
                    unknown_fields
                        .iter()
                        .map(|field| format!("{field}: {UNKNOWN}")),
                );

                if verdict.errors.is_empty() {
                    let object = object.without_internal_annotations();
                    let name = object.object_ref();
                    plan.action = match objects.any(&name) {
                        None => Action::Added,
                        Some(old) if old.same_content(&object) => Action::Unchanged,
                        Some(_) => Action::Changed,
                    };
                    self.names.push(name);
                    self.changes.push(Change::Put(object.clone()));
                    self.put.push((self.objects.len(), object));
                }
            }
        }

        self.objects.push(plan);
    }

    /// Adds a removal.
    fn removal(&mut self, wanted: &str, objects: &Objects) {
        let mut plan = ObjectPlan {
            place: "--remove".to_owned(),
            object: wanted.to_owned(),
            action: Action::Removed,
            errors: Vec::new(),
            warnings: Vec::new(),
        };

        match object_ref(wanted) {
            Ok(name) if objects.contains(&name) => {
                plan.object = name.to_string();
                if objects
                    .any(&name)
                    .is_some_and(|object| requests_stages(name.kind, object.meta()))
                {
                    plan.warnings.push(DELETION_IN_STAGES.to_owned());
                }
                self.names.push(name.clone());
                self.changes.push(Change::Removed(name));
            }
            Ok(name) => {
                plan.object = name.to_string();
                plan.action = Action::Unchanged;
                plan.warnings.push("the object does not exist".to_owned());
            }
            Err(reason) => {
                plan.action = Action::Rejected;
                plan.errors.push(reason);
            }
        }

        self.objects.push(plan);
    }

    /// Adds warnings about references to other objects, given the objects after the change.
    pub(super) fn check_references(&mut self, after: &Objects) {
        for (at, object) in &self.put {
            if let Some(plan) = self.objects.get_mut(*at) {
                plan.warnings
                    .extend(around(object, after).iter().map(ToString::to_string));
            }
        }
    }
}

/// The object that `KIND/NAMESPACE/NAME` names, or `KIND/NAME` for cluster-scoped kinds; the kind
/// is case-insensitive.
///
/// # Errors
/// If the kind is unknown, or a part is missing.
pub fn object_ref(text: &str) -> Result<ObjectRef, String> {
    let mut parts = text.split('/');
    let kind = parts.next().unwrap_or_default();
    let rest = parts.collect::<Vec<_>>();
    let kind = kind_of(kind)?;
    let name = match (rest.as_slice(), kind.is_cluster_scoped()) {
        ([name], true) => NamespacedName::new("", name),
        ([namespace, name], false) => NamespacedName::new(namespace, name),
        (_, true) => {
            return Err(format!(
                "{text:?} must be KIND/NAME: the kind is cluster-scoped"
            ));
        }
        (_, false) => return Err(format!("{text:?} must be KIND/NAMESPACE/NAME")),
    };
    Ok(ObjectRef { kind, name })
}

/// The kind of this name, case-insensitive: singular, plural (`virtualservices`) or kubectl's short
/// name.
///
/// # Errors
/// If it is unknown.
pub fn kind_of(text: &str) -> Result<Kind, String> {
    let lower = text.to_ascii_lowercase();
    let short = match lower.as_str() {
        "vs" => "virtualservice",
        "dr" => "destinationrule",
        "gw" => "gateway",
        "se" => "serviceentry",
        "we" => "workloadentry",
        "wg" => "workloadgroup",
        "ef" => "envoyfilter",
        "pa" => "peerauthentication",
        "ap" => "authorizationpolicy",
        "ra" => "requestauthentication",
        "pc" => "proxyconfig",
        "svc" => "service",
        "po" => "pod",
        "ns" => "namespace",
        other => other,
    };

    let is = |kind: &Kind| {
        let name = kind.as_str().to_ascii_lowercase();
        let plural = match name.strip_suffix('y') {
            Some(stem) if !name.ends_with("ay") => format!("{stem}ies"),
            Some(_) | None if name.ends_with('s') => format!("{name}es"),
            Some(_) | None => format!("{name}s"),
        };
        short == name || short == plural
    };

    // Istio's Gateway takes precedence over that of the Gateway API, as with `kubectl get gw`.
    let found = Kind::ALL
        .into_iter()
        .find(|kind| is(kind) && kind.group().ends_with("istio.io"));
    let found = found.or_else(|| Kind::ALL.into_iter().find(is));

    found.ok_or_else(|| format!("{text:?} is an unknown kind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let read = |text: &str| object_ref(text).map(|name| name.to_string());
        assert_eq!(
            read("vs/shop/reviews").unwrap(),
            "VirtualService shop/reviews"
        );
        assert_eq!(
            read("AuthorizationPolicies/shop/p").unwrap(),
            "AuthorizationPolicy shop/p"
        );
        assert_eq!(read("gateways/shop/g").unwrap(), "Gateway shop/g");
        assert_eq!(read("ns/shop").unwrap(), "Namespace shop");
        assert!(read("vs/reviews").unwrap_err().contains("NAMESPACE"));
        assert!(read("widget/a/b").unwrap_err().contains("widget"));
    }
}
