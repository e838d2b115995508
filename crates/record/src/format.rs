//! The lines of a record. Each is one JSON object with one member, which says what it is.
//!
//! A segment begins with a [`Header`], the inputs, proxies and subscriptions that there are, and a [`Complete`]. Then comes what is
//! done: inputs are taken in by the [`Push`](Line::Push) that follows them.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::settings::Settings;

/// The version of the format. Readers refuse others.
pub const VERSION: u32 = 1;

/// A moment, written as RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(de::Error::custom)
    }
}

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The first of a segment.
    Header(Box<Header>),
    /// Something came in; taken in by the next push.
    Input(Box<Input>),
    /// A stream began.
    Proxy(Box<ProxyLine>),
    /// A set of names, told once and named by its number.
    Names(NameSet),
    /// A subscription was answered.
    Watch(Watch),
    /// A stream wants nothing more of a type.
    Unwatch(OfProxy),
    /// Inputs were taken in and what they reach was published.
    Push(Push),
    /// The first reading is in: from here on proxies are answered.
    Synced(At),
    /// Streams have ended.
    Gone(Gone),
    /// Clients have taken (ACK) what they were sent of a type.
    Took(Took),
    /// A client has refused (NACK) what it was sent of a type.
    Refused(Refused),
    /// All that there was when the segment was begun has been told.
    Complete(Complete),
    /// What follows is not all there was.
    Lost(Lost),
}

/// The first line of a segment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`VERSION`].
    pub format: u32,
    /// The version of Navarch that wrote it.
    pub navarch: String,
    /// Which run of the process: segments of one run follow each other.
    pub run: String,
    /// The number of the segment.
    pub segment: u64,
    /// When it was begun.
    pub at: Moment,
    /// What flags and environment said.
    pub settings: Settings,
}

/// A change of the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Input {
    /// An object as it is now, as an API server would show it.
    Put(Value),
    /// An object is gone.
    Removed(ObjectName),
    /// Mesh config.
    Mesh(Box<MeshConfig>),
    /// Mesh networks.
    Networks(MeshNetworks),
    /// Whether a service account may read the secrets of its namespace; `null` where that matters no more.
    SecretReader(Account, Option<bool>),
    /// The keys of a token issuer; `null` where they are believed no more.
    Keys(KeyPlace, Option<String>),
    /// The roots of trust.
    Roots(Vec<String>),
    /// An object was taken out of force, since a proxy said so.
    Quarantine(ObjectName, String),
    /// The addresses of a gateway between networks.
    GatewayHost(String, Option<Vec<IpAddr>>),
    /// From now on changes of objects that ask for it reach proxies in stages.
    Stages,
    /// What became of a change that reaches proxies in stages.
    Rollout(ObjectName, Box<RolloutLine>),
    /// An object of a remote cluster.
    RemotePut(String, Value),
    /// An object of a remote cluster is gone.
    RemoteRemoved(String, ObjectName),
    /// All objects of a remote cluster.
    RemoteReset(String, Vec<Value>),
    /// A remote cluster is gone.
    RemoteGone(String),
    /// As `secretReader`, in a remote cluster.
    RemoteSecretReader(String, Account, Option<bool>),
}

/// What became of a change that reaches proxies in stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RolloutLine {
    /// It is at this stage, from 0, with these proxies beside those of the stage's share.
    Stage(usize, Vec<String>),
    /// It was stopped, for this reason.
    Stop(String),
    /// It is in force for all.
    Complete,
    /// It was under way: the new version, the one before, and how far it had come.
    Restore(Value, Option<Value>, RolloutProgress),
}

/// How far a change has come that reaches proxies in stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RolloutProgress {
    /// No proxy has it yet.
    Waiting,
    /// It is at this stage, from 0, with these proxies beside those of the stage's share.
    Stage(usize, Vec<String>),
    /// No proxy has it any more, for this reason.
    Stopped(String),
}

/// What names an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectName {
    /// The API group, empty for the core group.
    pub group: String,
    /// Its kind: `VirtualService`.
    pub kind: String,
    /// The namespace, empty where the kind has none.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// Where keys are fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeyPlace {
    /// At this address.
    Uri(String),
    /// At the address that the issuer tells.
    Issuer(String),
}

/// A proxy as it described itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyLine {
    /// Names it in the lines that follow.
    pub number: u64,
    /// When it came.
    pub at: Moment,
    /// The id of its node.
    pub node: String,
    /// The name of its service, as its bootstrap has it.
    pub cluster: String,
    /// The metadata of its node.
    pub metadata: Value,
    /// Region, zone and sub-zone.
    pub locality: [String; 3],
    /// The extensions that it says it has.
    pub extensions: Option<Vec<String>>,
    /// Whether its stream carries deltas.
    pub deltas: bool,
    /// Who it was proved to be.
    pub identity: Option<String>,
    /// Where it is.
    pub peer: Option<IpAddr>,
}

/// A set of names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameSet {
    /// Its number in the segment.
    pub set: u64,
    /// The set that it is told by the difference from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Names that it has more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    /// Names that it has not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// A subscription.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// When it was answered.
    pub at: Moment,
    /// Who asked.
    pub proxy: u64,
    /// Istio's short name of the type, such as `cds`.
    pub r#type: String,
    /// Whether all is wanted.
    pub wildcard: bool,
    /// The set of names that are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<u64>,
    /// The type was given up before the answer, and is taken away after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// What was shown.
    pub pushes: Vec<PushGroup>,
}

/// A type of a proxy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfProxy {
    /// When.
    pub at: Moment,
    /// The number of the proxy, as of the line that it came with.
    pub proxy: u64,
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
}

/// What was made of the inputs before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Push {
    /// When.
    pub at: Moment,
    /// The revision of the snapshot.
    pub revision: u64,
    /// Somebody had all computed anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// What was shown.
    pub pushes: Vec<PushGroup>,
}

/// Proxies that are shown the same of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PushGroup {
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// Who is shown it: ranges of numbers, both ends included.
    pub proxies: Vec<[u64; 2]>,
    /// How many resources there are.
    pub resources: usize,
    /// The digest of all of them.
    pub digest: String,
}

/// Only when.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct At {
    /// When.
    pub at: Moment,
}

/// Streams that ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gone {
    /// When.
    pub at: Moment,
    /// Their proxies, in ranges.
    pub proxies: Vec<[u64; 2]>,
}

/// Who has taken what it was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Took {
    /// When, at the latest.
    pub at: Moment,
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// The proxies, in ranges.
    pub proxies: Vec<[u64; 2]>,
}

/// Who has refused what it was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// When.
    pub at: Moment,
    /// The number of the proxy, as of the line that it came with.
    pub proxy: u64,
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// What it said.
    pub said: String,
}

/// The end of what there was when a segment was begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Complete {
    /// When.
    pub at: Moment,
    /// The revision of the snapshot.
    pub revision: u64,
    /// Whether the first reading was in.
    pub synced: bool,
    /// What proxies were shown.
    pub pushes: Vec<PushGroup>,
}

/// Why something is missing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lost {
    /// When.
    pub at: Moment,
    /// Why.
    pub why: String,
}

/// Numbers as ranges, both ends included.
#[must_use]
pub fn ranges(numbers: impl IntoIterator<Item = u64>) -> Vec<[u64; 2]> {
    let mut all: Vec<u64> = numbers.into_iter().collect();
    all.sort_unstable();
    let mut ranges: Vec<[u64; 2]> = Vec::new();
    for number in all {
        match ranges.last_mut() {
            Some([_, last]) if number <= last.saturating_add(1) => *last = number,
            Some(_) | None => ranges.push([number, number]),
        }
    }
    ranges
}

/// The numbers in ranges.
pub fn numbers(ranges: &[[u64; 2]]) -> impl Iterator<Item = u64> {
    ranges.iter().flat_map(|[first, last]| *first..=*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges_and_come_back() {
        let written = ranges([5, 1, 2, 3, 9, 8]);
        assert_eq!(written, [[1, 3], [5, 5], [8, 9]]);
        assert_eq!(numbers(&written).collect::<Vec<_>>(), [1, 2, 3, 5, 8, 9]);
        assert_eq!(ranges([]), Vec::<[u64; 2]>::new());
    }
}
