//! What comes of playing a record, for people and programs.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::format::Moment;

/// Maximum number of names of proxies and resources in a report.
pub(crate) const MAX_NAMES: usize = 8;

/// One thing of a record that was played.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlayedStep {
    /// When it happened.
    pub at: Moment,
    /// What.
    pub what: Played,
    /// What was pushed for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pushes: Vec<PlayedPush>,
    /// How that differs from what was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Played {
    /// A record begins, or goes on after a gap, with what there was.
    Begun {
        /// The segment's file.
        file: PathBuf,
        /// The version of Navarch that wrote it.
        navarch: String,
        /// How many inputs there were.
        inputs: usize,
        /// How many proxies.
        proxies: usize,
    },
    /// Inputs changed.
    Changed {
        /// The revision of the snapshot.
        revision: u64,
        /// The first of them.
        inputs: Vec<String>,
        /// How many more.
        more: usize,
    },
    /// Somebody had all computed anew.
    Anew {
        /// The revision of the snapshot.
        revision: u64,
    },
    /// A proxy came.
    Connected {
        /// `pod.namespace`.
        proxy: String,
    },
    /// Proxies went.
    Gone {
        /// The first of them.
        proxies: Vec<String>,
    },
    /// A proxy asked for something.
    Subscribed {
        /// `pod.namespace`.
        proxy: String,
        /// The type by its short name: `cds`, `lds`.
        r#type: String,
        /// How many names it asks for; `None` is all.
        names: Option<usize>,
    },
    /// A proxy wants nothing more of a type.
    Unsubscribed {
        /// `pod.namespace`.
        proxy: String,
        /// The type by its short name: `cds`, `lds`.
        r#type: String,
    },
    /// Proxies have taken (ACK) a type.
    Took {
        /// The type by its short name: `cds`, `lds`.
        r#type: String,
        /// How many.
        proxies: usize,
        /// The first of them.
        names: Vec<String>,
    },
    /// A proxy has refused (NACK) a type.
    Refused {
        /// `pod.namespace`.
        proxy: String,
        /// The type by its short name: `cds`, `lds`.
        r#type: String,
        /// What it said.
        said: String,
    },
    /// The first reading was in.
    Synced,
    /// Something is missing from here on.
    Lost {
        /// Why.
        why: String,
    },
}

/// What several proxies were pushed of a type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlayedPush {
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// How many proxies.
    pub proxies: usize,
    /// The first of them.
    pub names: Vec<String>,
    /// How many resources they have then.
    pub resources: usize,
    /// How many are new.
    pub added: usize,
    /// How many say something else.
    pub changed: usize,
    /// How many are gone.
    pub removed: usize,
    /// The first of all these.
    pub touched: Vec<String>,
    /// About how many bytes tell one proxy of it.
    pub bytes: usize,
    /// The digest of all resources.
    pub digest: String,
}

/// Where what was played differs from what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The segment's file.
    pub file: PathBuf,
    /// The line that tells what was recorded, in bytes from the beginning.
    pub offset: usize,
    /// `pod.namespace`.
    pub proxy: String,
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// What was recorded: how many resources, and their digest; `None` is no push.
    pub recorded: Option<(usize, String)>,
    /// What came of it now.
    pub played: Option<(usize, String)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |pushed: &Option<(usize, String)>| match pushed {
            Some((count, digest)) => format!("{count} resources with the digest {digest}"),
            None => "nothing".to_owned(),
        };
        let Self { file, offset, proxy, r#type, recorded, played } = self;
        let (file, recorded, played) = (file.display(), told(recorded), told(played));
        write!(f, "{file} at byte {offset}: {proxy} was sent {recorded} of {type}, and now gets {played}")
    }
}

/// Names, and how many more there are.
fn some(names: &[String], count: usize) -> String {
    match count.saturating_sub(names.len()) {
        0 => names.join(", "),
        more => format!("{}, and {more} more", names.join(", ")),
    }
}

impl fmt::Display for PlayedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  ", self.at.0.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))?;
        match &self.what {
            Played::Begun { file, navarch, inputs, proxies } => {
                let file = file.display();
                writeln!(f, "{file} of navarch {navarch} begins with {inputs} inputs and {proxies} proxies")?;
            }
            Played::Changed { revision, inputs, more } => {
                let all = if inputs.is_empty() { "nothing".to_owned() } else { some(inputs, inputs.len() + more) };
                writeln!(f, "push {revision} for {all}")?;
            }
            Played::Anew { revision } => writeln!(f, "push {revision}: all was computed anew")?,
            Played::Connected { proxy } => writeln!(f, "{proxy} connects")?,
            Played::Gone { proxies } => writeln!(f, "{} gone", proxies.join(", "))?,
            Played::Subscribed { proxy, r#type, names: None } => writeln!(f, "{proxy} asks for all of {type}")?,
            Played::Subscribed { proxy, r#type, names: Some(names) } => {
                writeln!(f, "{proxy} asks for {names} names of {type}")?;
            }
            Played::Unsubscribed { proxy, r#type } => writeln!(f, "{proxy} wants no more of {type}")?,
            Played::Took { r#type, proxies, names } => writeln!(f, "ACK of {type} by {}", some(names, *proxies))?,
            Played::Refused { proxy, r#type, said } => writeln!(f, "NACK of {type} by {proxy}: {said}")?,
            Played::Synced => writeln!(f, "the first reading is in")?,
            Played::Lost { why } => writeln!(f, "from here on something is missing: {why}")?,
        }
        for push in &self.pushes {
            let PlayedPush { r#type, added, changed, removed, bytes, .. } = push;
            let touched = some(&push.touched, added + changed + removed);
            let proxies = some(&push.names, push.proxies);
            let parts = format!("{added} added, {changed} changed, {removed} removed, {bytes} bytes");
            let touched = if touched.is_empty() { String::new() } else { format!(" ({touched})") };
            writeln!(f, "    {type}: {parts}{touched} to {proxies}")?;
        }
        match &self.difference {
            Some(difference) => writeln!(f, "    DIFFERS  {difference}"),
            None => Ok(()),
        }
    }
}
