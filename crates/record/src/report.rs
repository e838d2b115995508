//! The report of a replay, as text and JSON.

use std::fmt;
use std::path::PathBuf;

use navarch_base::printable::{escape, escape_list};
use serde::Serialize;

use super::format::Moment;

/// Maximum number of names of proxies and resources in a report.
pub(crate) const MAX_NAMES: usize = 8;

/// One replayed event of a recording.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlayedStep {
    /// When it happened.
    pub at: Moment,
    /// The event.
    pub what: Played,
    /// The resulting pushes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pushes: Vec<PlayedPush>,
    /// The difference to the recorded pushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// A replayed event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Played {
    /// A recording starts, or continues after a gap, with the initial state.
    Begun {
        /// The segment's file.
        file: PathBuf,
        /// The version of Navarch that wrote it.
        navarch: String,
        /// Inputs of the initial state.
        inputs: usize,
        /// Proxies that were connected at the begin.
        proxies: usize,
    },
    /// Inputs changed.
    Changed {
        /// The revision of the snapshot.
        revision: u64,
        /// The first of them.
        inputs: Vec<String>,
        /// The number of further inputs.
        more: usize,
    },
    /// All results were recomputed on request.
    Anew {
        /// The revision of the snapshot.
        revision: u64,
    },
    /// A proxy connected.
    Connected {
        /// `pod.namespace`.
        proxy: String,
    },
    /// Proxies disconnected.
    Gone {
        /// The first of them.
        proxies: Vec<String>,
    },
    /// A proxy subscribed to a type.
    Subscribed {
        /// `pod.namespace`.
        proxy: String,
        /// The type by its short name: `cds`, `lds`.
        r#type: String,
        /// The number of requested names; `None` is a wildcard.
        names: Option<usize>,
    },
    /// A proxy unsubscribed from a type.
    Unsubscribed {
        /// `pod.namespace`.
        proxy: String,
        /// The type by its short name: `cds`, `lds`.
        r#type: String,
    },
    /// Proxies acknowledged (ACK) a type.
    Took {
        /// The type by its short name: `cds`, `lds`.
        r#type: String,
        /// How many proxies acknowledged.
        proxies: usize,
        /// The first of them.
        names: Vec<String>,
    },
    /// A proxy rejected (NACK) a type.
    #[serde(rename = "refused")]
    Nack {
        /// `pod.namespace`.
        proxy: String,
        /// The type by its short name: `cds`, `lds`.
        r#type: String,
        /// The error message.
        said: String,
    },
    /// The initial state of all sources was complete.
    Synced,
    /// Events are missing from here on.
    Lost {
        /// The reason in the recording, in words.
        why: String,
    },
}

/// A push of a type to several proxies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlayedPush {
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// How many proxies got the same push.
    pub proxies: usize,
    /// The first of them.
    pub names: Vec<String>,
    /// The number of resources after the push.
    pub resources: usize,
    /// The number of added resources.
    pub added: usize,
    /// The number of changed resources.
    pub changed: usize,
    /// The number of removed resources.
    pub removed: usize,
    /// The first names of added, changed and removed resources.
    pub touched: Vec<String>,
    /// Approximate size in bytes for one proxy.
    pub bytes: usize,
    /// The digest of all resources.
    pub digest: String,
}

/// A difference between replay and recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The segment's file.
    pub file: PathBuf,
    /// Byte offset of the recorded line.
    pub offset: usize,
    /// `pod.namespace`.
    pub proxy: String,
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// The recorded push: number and digest of resources; `None` is no push.
    pub recorded: Option<(usize, String)>,
    /// The replayed push.
    pub played: Option<(usize, String)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let describe_push = |pushed: &Option<(usize, String)>| match pushed {
            Some((count, digest)) => format!("{count} resources with the digest {digest}"),
            None => "nothing".to_owned(),
        };
        let Self {
            file,
            offset,
            proxy,
            r#type,
            recorded,
            played,
        } = self;

        let file = file.display().to_string();
        let file = escape(&file);
        let proxy = escape(proxy);
        let r#type = escape(r#type);
        let recorded = describe_push(recorded);
        let recorded = escape(&recorded);
        let played = describe_push(played);
        write!(
            f,
            "{file} at byte {offset}: {proxy} was sent {recorded} of {type}, but the replay gives {played}"
        )
    }
}

/// The first names, and the number of further ones.
fn some(names: &[String], count: usize) -> String {
    match count.saturating_sub(names.len()) {
        0 => escape_list(names),
        more => format!("{}, and {more} more", escape_list(names)),
    }
}

impl fmt::Display for PlayedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  ", self.at.0.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))?;

        match &self.what {
            Played::Begun {
                file,
                navarch,
                inputs,
                proxies,
            } => {
                let file = file.display().to_string();
                writeln!(
                    f,
                    "{} of navarch {} begins with {inputs} inputs and {proxies} proxies",
                    escape(&file),
                    escape(navarch)
                )?;
            }
            Played::Changed {
                revision,
                inputs,
                more,
            } => {
                let all = if inputs.is_empty() {
                    "nothing".to_owned()
                } else {
                    some(inputs, inputs.len() + more)
                };

                writeln!(f, "push {revision} for {all}")?;
            }
            Played::Anew { revision } => writeln!(f, "push {revision}: everything was recomputed")?,
            Played::Connected { proxy } => writeln!(f, "{} connects", escape(proxy))?,
            Played::Gone { proxies } => writeln!(f, "{} gone", escape_list(proxies))?,
            Played::Subscribed {
                proxy,
                r#type,
                names: None,
            } => writeln!(
                f,
                "{} subscribes to all of {}",
                escape(proxy),
                escape(r#type)
            )?,
            Played::Subscribed {
                proxy,
                r#type,
                names: Some(names),
            } => writeln!(
                f,
                "{} subscribes to {names} names of {}",
                escape(proxy),
                escape(r#type)
            )?,
            Played::Unsubscribed { proxy, r#type } => {
                writeln!(f, "{} unsubscribes from {}", escape(proxy), escape(r#type))?;
            }
            Played::Took {
                r#type,
                proxies,
                names,
            } => writeln!(f, "ACK of {} by {}", escape(r#type), some(names, *proxies))?,
            Played::Nack {
                proxy,
                r#type,
                said,
            } => writeln!(
                f,
                "NACK of {} by {}: {}",
                escape(r#type),
                escape(proxy),
                escape(said)
            )?,
            Played::Synced => writeln!(f, "the initial configuration was read")?,
            Played::Lost { why } => {
                writeln!(f, "the recording is incomplete from here: {}", escape(why))?;
            }
        }

        for push in &self.pushes {
            let PlayedPush {
                r#type,
                added,
                changed,
                removed,
                bytes,
                ..
            } = push;

            let touched = some(&push.touched, added + changed + removed);
            let proxies = some(&push.names, push.proxies);
            let parts =
                format!("{added} added, {changed} changed, {removed} removed, {bytes} bytes");
            let touched = if touched.is_empty() {
                String::new()
            } else {
                format!(" ({touched})")
            };

            let resource_type = escape(r#type);
            writeln!(f, "    {resource_type}: {parts}{touched} to {proxies}")?;
        }

        match &self.difference {
            Some(difference) => writeln!(f, "    DIFFERS  {difference}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use navarch_base::printable::is_unprintable;

    use super::*;

    /// A name that a client subscribes to: it would add a line, ring and clear the screen.
    fn forged() -> String {
        "a\n2026-01-01T00:00:00.000Z  forged\u{7}\u{1b}]0;x\u{9b}2J\u{202e}\0".to_owned()
    }

    fn assert_lines(what: Played, expected: usize) {
        let push = PlayedPush {
            r#type: forged(),
            proxies: 2,
            names: vec![forged()],
            resources: 1,
            added: 1,
            changed: 0,
            removed: 0,
            touched: vec![forged()],
            bytes: 7,
            digest: forged(),
        };
        let difference = Difference {
            file: PathBuf::from(forged()),
            offset: 3,
            proxy: forged(),
            r#type: forged(),
            recorded: Some((1, forged())),
            played: None,
        };
        let step = PlayedStep {
            at: Moment("2026-06-01T00:00:00Z".parse().unwrap()),
            what,
            pushes: vec![push],
            difference: Some(difference),
        };

        let text = step.to_string();
        assert_eq!(text.lines().count(), expected, "{text}");
        let hidden = text
            .chars()
            .find(|character| *character != '\n' && is_unprintable(*character));
        assert_eq!(hidden, None, "{text}");
    }

    #[test]
    fn names_of_clients_add_no_lines_to_a_step() {
        let one = forged;
        let several = || vec![forged(), forged()];

        let steps = [
            Played::Begun {
                file: PathBuf::from(forged()),
                navarch: one(),
                inputs: 1,
                proxies: 1,
            },
            Played::Changed {
                revision: 1,
                inputs: several(),
                more: 1,
            },
            Played::Anew { revision: 1 },
            Played::Connected { proxy: one() },
            Played::Gone { proxies: several() },
            Played::Subscribed {
                proxy: one(),
                r#type: one(),
                names: None,
            },
            Played::Subscribed {
                proxy: one(),
                r#type: one(),
                names: Some(2),
            },
            Played::Unsubscribed {
                proxy: one(),
                r#type: one(),
            },
            Played::Took {
                r#type: one(),
                proxies: 3,
                names: several(),
            },
            Played::Nack {
                proxy: one(),
                r#type: one(),
                said: one(),
            },
            Played::Synced,
            Played::Lost { why: one() },
        ];

        for step in steps {
            assert_lines(step, 3);
        }
    }
}
