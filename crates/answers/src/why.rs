//! Answers to why a proxy has a resource, which pushes it was sent, and why a request fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use navarch_base::printable::{escape, escape_list};
use navarch_push::learned::ScopedClusters;
use serde::{Deserialize, Serialize};

/// The resources of a proxy and their inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyProxy {
    /// The stream ID, `<pod>.<namespace>-<number>`.
    pub proxy: String,
    /// The resources of the requested name.
    pub resources: Vec<ResourceProvenance>,
}

/// A resource and the inputs that it was built from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceProvenance {
    /// The resource type, such as `cds`.
    pub r#type: String,
    /// Resource name, as Envoy subscribes to it.
    pub name: String,
    /// The resource's version: the hash of its content.
    pub version: String,
    /// The inputs, in the order of their first read.
    pub objects: Vec<SourceObject>,
}

/// An input of a resource: an object, or an input such as mesh config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceObject {
    /// `Kind namespace/name`, or the name of the input, such as `mesh config`.
    pub object: String,
    /// `metadata.generation`, if the object has one.
    pub generation: Option<i64>,
    /// The fields on which the resource depends, if determined.
    #[serde(default)]
    pub field: FieldsKnown,
}

/// The fields of an object on which a resource depends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FieldsKnown {
    /// Not determined, as for inputs that are not objects.
    #[default]
    Unasked,
    /// The analysis cannot determine the fields.
    Unknown,
    /// The object was read, and the resource is the same without it.
    NoEffect,
    /// The resource depends on each of these fields.
    Fields(Vec<String>),
}

/// The scope of a sidecar with the label `navarch.io/scope: learned`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "form",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ProxyScope {
    /// It has some of its clusters.
    Learned {
        /// How many it has.
        clusters: usize,
        /// How many it would have without the label.
        of: usize,
        /// Those of hosts that its workload has used.
        used: usize,
        /// Those that are never lazy.
        never_lazy: usize,
        /// Others, which its Envoy has requested, or kept from an earlier stream.
        requested: usize,
    },
    /// Its stream has started with a learned scope, and it has all clusters now.
    Whole,
}

/// The last pushes of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhyPush {
    /// The stream ID, `<pod>.<namespace>-<number>`.
    pub proxy: String,
    /// Its scope, if it is learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ProxyScope>,
    /// The proxy's pushes, newest first.
    pub pushes: Vec<Pushed>,
}

/// One discovery response, and why it was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pushed {
    /// The time of the response.
    pub at: String,
    /// The resource type, such as `cds`.
    pub r#type: String,
    /// The causes of the push: objects with their generations, or a subscription.
    pub causes: Vec<String>,
    /// Resources that were sent.
    pub resources: u32,
    /// Names that were removed.
    pub removed: u32,
    /// The size of the resources in bytes.
    pub bytes: u32,
    /// Milliseconds until the client answered; `None` without an answer.
    pub answered_ms: Option<f64>,
    /// Whether the client acknowledged the response; `None` without an answer.
    pub taken: Option<bool>,
}

/// Why a request fails, or that it succeeds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyNot {
    /// The request as text.
    pub request: String,
    /// The steps of the request's path.
    pub steps: Vec<String>,
    /// The first reason for the failure; `None` if the request succeeds.
    pub reason: Option<String>,
    /// How to fix the failure, if known.
    pub advice: Option<String>,
    /// Facts that are unknown to the control plane.
    pub unknown: Vec<String>,
    /// The last destinations, each with its share of the requests in thousandths.
    #[serde(skip)]
    pub destinations: BTreeMap<String, u64>,
    /// The destinations without a proxy that is known here: no policies were evaluated for them.
    #[serde(skip)]
    pub unseen: BTreeSet<String>,
    /// The destinations that refuse the request, if it is followed to all.
    #[serde(skip)]
    pub refused_at: BTreeSet<String>,
    /// The response of a proxy on the way that is part of its routes: a redirect, or a direct
    /// response. Then `reason` is set, too.
    #[serde(skip)]
    pub response: Option<String>,
}

impl WhyNot {
    /// Adds a step unless the step exists.
    pub(super) fn step_once(&mut self, step: String) {
        if !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }

    /// Adds a step about an address, unless the step exists for another address.
    pub(super) fn first_step(&mut self, step: &str, address: &SocketAddr) {
        if !self.steps.iter().any(|known| known.starts_with(step)) {
            self.steps.push(format!("{step} {address}"));
        }
    }

    /// Adds an unknown fact unless it exists.
    pub(super) fn unknown_once(&mut self, what: &str) {
        if !self.unknown.iter().any(|known| known == what) {
            self.unknown.push(what.to_owned());
        }
    }
}

impl fmt::Display for WhyProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for made in &self.resources {
            writeln!(
                f,
                "{} {} of {} is generated from",
                escape(&made.r#type),
                escape(&made.name),
                escape(&self.proxy)
            )?;

            for one in &made.objects {
                let generation = one.generation.filter(|generation| *generation > 0);
                let generation = generation
                    .map(|generation| format!(", generation {generation}"))
                    .unwrap_or_default();
                let field = match &one.field {
                    FieldsKnown::Unasked => String::new(),
                    FieldsKnown::Unknown => ": fields unknown".to_owned(),
                    FieldsKnown::NoEffect => ": no effect".to_owned(),
                    FieldsKnown::Fields(fields) => format!(": {}", escape_list(fields)),
                };
                writeln!(f, "  {}{generation}{field}", escape(&one.object))?;
            }
        }

        Ok(())
    }
}

impl From<Option<ScopedClusters>> for ProxyScope {
    /// The scope of a proxy with these clusters; `None` if it is served whole.
    fn from(counted: Option<ScopedClusters>) -> Self {
        match counted {
            Some(counted) => Self::Learned {
                clusters: counted.fixed + counted.used + counted.requested,
                of: counted.all,
                used: counted.used,
                never_lazy: counted.fixed,
                requested: counted.requested,
            },
            None => Self::Whole,
        }
    }
}

impl fmt::Display for ProxyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Learned {
                clusters,
                of,
                used,
                never_lazy,
                requested,
            } => write!(
                f,
                "learned, {clusters} of {of} clusters ({used} used by its workload, {never_lazy} never \
                 lazy, {requested} requested by its Envoy); others on demand"
            ),
            Self::Whole => write!(
                f,
                "whole now: the label was removed, or /debug/push_status has the reason"
            ),
        }
    }
}

impl fmt::Display for WhyPush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scope) = &self.scope {
            writeln!(f, "scope: {scope}")?;
        }
        let proxy = escape(&self.proxy);
        writeln!(f, "The last pushes of {proxy}, newest first")?;

        for one in &self.pushes {
            let answer = match (one.answered_ms, one.taken) {
                (Some(ms), Some(true)) => format!("acknowledged after {ms:.1} ms"),
                (Some(ms), _) => format!("REJECTED after {ms:.1} ms"),
                (None, _) => "not acknowledged".to_owned(),
            };
            let at = escape(&one.at);
            let resource_type = escape(&one.r#type);
            let causes = escape_list(&one.causes);

            let resources = one.resources;
            let removed = one.removed;
            let bytes = one.bytes;
            writeln!(
                f,
                "  {at} {resource_type}: {resources} resources, {removed} removed, {bytes} bytes, {answer}; caused by {causes}"
            )?;
        }

        Ok(())
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", escape(&self.request))?;
        self.steps
            .iter()
            .try_for_each(|step| writeln!(f, "  {}", escape(step)))?;
        match &self.reason {
            Some(reason) => writeln!(f, "It fails: {}", escape(reason))?,
            None => writeln!(f, "No problem found in the configuration.")?,
        }
        if let Some(advice) = &self.advice {
            writeln!(f, "  {}", escape(advice))?;
        }
        self.unknown
            .iter()
            .try_for_each(|name| writeln!(f, "  not known to the control plane: {}", escape(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that would add a line, and clear the screen.
    const FORGED: &str = "a\nIt fails: forged\u{1b}[2J";

    fn assert_lines(text: &str, expected: usize) {
        assert_eq!(text.lines().count(), expected, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn texts_of_answers_add_no_lines() {
        let forged = || FORGED.to_owned();

        let why_not = WhyNot {
            request: forged(),
            steps: vec![forged()],
            reason: Some(forged()),
            advice: Some(forged()),
            unknown: vec![forged()],
            ..WhyNot::default()
        };
        assert_lines(&why_not.to_string(), 5);

        let source = SourceObject {
            object: forged(),
            generation: Some(1),
            field: FieldsKnown::Fields(vec![forged()]),
        };
        let made = ResourceProvenance {
            r#type: forged(),
            name: forged(),
            version: forged(),
            objects: vec![source],
        };
        let why_proxy = WhyProxy {
            proxy: forged(),
            resources: vec![made],
        };
        assert_lines(&why_proxy.to_string(), 2);

        let pushed = Pushed {
            at: forged(),
            r#type: forged(),
            causes: vec![forged()],
            resources: 1,
            removed: 0,
            bytes: 7,
            answered_ms: None,
            taken: None,
        };
        let why_push = WhyPush {
            proxy: forged(),
            scope: None,
            pushes: vec![pushed],
        };
        assert_lines(&why_push.to_string(), 2);
    }

    #[test]
    fn a_learned_scope_is_shown_with_its_reasons() {
        let counted = ScopedClusters {
            all: 1003,
            fixed: 4,
            used: 7,
            requested: 1,
        };
        let shown = WhyPush {
            scope: Some(Some(counted).into()),
            ..WhyPush::default()
        };
        let text = shown.to_string();
        let expected = "scope: learned, 12 of 1003 clusters (7 used by its workload, 4 never lazy, \
                        1 requested by its Envoy); others on demand\n";
        assert!(text.starts_with(expected), "{text}");

        let json = serde_json::to_value(&shown).unwrap();
        let expected = serde_json::json!({
            "form": "learned", "clusters": 12, "of": 1003, "used": 7, "neverLazy": 4, "requested": 1,
        });
        assert_eq!(json["scope"], expected);
        assert_eq!(serde_json::from_value::<WhyPush>(json).unwrap(), shown);

        let whole = WhyPush {
            scope: Some(None.into()),
            ..WhyPush::default()
        };
        assert!(whole.to_string().starts_with("scope: whole now"));
        let without = serde_json::to_value(WhyPush::default()).unwrap();
        assert_eq!(without.get("scope"), None);
    }
}
