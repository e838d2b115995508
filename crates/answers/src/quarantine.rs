//! Quarantined objects, as operators see them.

use std::fmt;

use navarch_base::printable::escape;
use serde::{Deserialize, Serialize};

/// All quarantined objects: the body of `/debug/quarantine`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedObjects {
    /// Ordered by kind, namespace and name.
    pub quarantined: Vec<QuarantinedObject>,
}

/// An object whose new version proxies rejected: they keep the previous one, if there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedObject {
    /// Kind, namespace and name.
    pub object: String,
    /// `metadata.generation` of the rejected version.
    pub generation: i64,
    /// The generation that is served instead; `null` if there is none.
    pub served: Option<i64>,
    /// Who rejected it, with an excerpt of a proxy's error message.
    pub message: String,
}

impl fmt::Display for QuarantinedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.quarantined.is_empty() {
            return writeln!(f, "no object is quarantined");
        }

        for one in &self.quarantined {
            let QuarantinedObject {
                object,
                generation,
                served,
                message,
            } = one;
            let served = match served {
                Some(served) => format!("generation {served} is served"),
                None => "it is not served".to_owned(),
            };
            writeln!(
                f,
                "{}: generation {generation} is quarantined, {served}",
                escape(object)
            )?;
            writeln!(f, "  {}", escape(message))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_served_version_is_named() {
        let one = |served| QuarantinedObject {
            object: "VirtualService shop/v".to_owned(),
            generation: 3,
            served,
            message: "rejected by 2 of 2".to_owned(),
        };
        let all = QuarantinedObjects {
            quarantined: vec![one(Some(2)), one(None)],
        };
        assert_eq!(
            all.to_string(),
            "VirtualService shop/v: generation 3 is quarantined, generation 2 is served\n  rejected by 2 of 2\n\
             VirtualService shop/v: generation 3 is quarantined, it is not served\n  rejected by 2 of 2\n"
        );

        let forged = QuarantinedObject {
            message: "x\nVirtualService shop/w: forged\u{1b}[2J".to_owned(),
            ..one(None)
        };
        let all = QuarantinedObjects {
            quarantined: vec![forged],
        };
        let text = all.to_string();
        assert!(
            text.ends_with("\n  x\\nVirtualService shop/w: forged\\u{1b}[2J\n"),
            "{text}"
        );

        assert_eq!(
            QuarantinedObjects::default().to_string(),
            "no object is quarantined\n"
        );
    }
}
