//! The recording format: JSON lines, each an object with one member, whose key is the type of the
//! line.
//!
//! A segment starts with a [`Header`], the initial state (inputs, proxies and subscriptions), and a
//! [`Complete`]. Then come events; inputs are applied by the [`Push`](Line::Push) that follows
//! them.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::settings::Settings;

/// The version of the format. Readers reject higher ones. A new kind of line or input is a higher
/// version, as a replay without it computes something else.
pub const VERSION: u32 = 2;

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
        String::deserialize(deserializer)?
            .parse()
            .map(Self)
            .map_err(de::Error::custom)
    }
}

/// A line of a segment, such as `{"push": …}`: the key is the variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The first line of a segment.
    Header(Box<Header>),
    /// A change of an input; applied by the next push.
    Input(Box<Input>),
    /// A stream began.
    Proxy(Box<ProxyLine>),
    /// A set of names, written once and referenced by its number.
    Names(NameSet),
    /// A subscription was answered.
    Watch(Watch),
    /// A stream unsubscribed from a type.
    Unwatch(OfProxy),
    /// Inputs were applied and affected collections published.
    Push(Push),
    /// The initial state of all sources is complete: from here on proxies are answered.
    Synced(At),
    /// Streams have ended.
    Gone(Gone),
    /// Clients acknowledged (ACK) responses of a type.
    Took(Took),
    /// A client rejected (NACK) a response of a type.
    #[serde(rename = "refused")]
    Nack(Nack),
    /// The end of the initial state of a segment.
    Complete(Complete),
    /// Events are missing from here on.
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
    /// The run of the process: segments of one run are continuous.
    pub run: String,
    /// Counts the segments of the run.
    pub segment: u64,
    /// When the segment was started.
    pub at: Moment,
    /// Settings from flags and environment.
    pub settings: Settings,
}

/// A change of the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Input {
    /// An object as it is now, as in an API server.
    Put(Value),
    /// An object is gone.
    Removed(ObjectName),
    /// The whole mesh config, after it was read again.
    Mesh(Box<MeshConfig>),
    /// All mesh networks, after they were read again.
    Networks(MeshNetworks),
    /// Whether a service account may read the secrets of its namespace; `null` if no longer needed.
    SecretReader(Account, Option<bool>),
    /// The JWKS of a token issuer; `null` if no longer trusted.
    Keys(KeyPlace, Option<String>),
    /// The roots of trust.
    Roots(Vec<String>),
    /// An object was quarantined, with the proxy's error message.
    Quarantine(ObjectName, String),
    /// A quarantine was read from its store.
    QuarantineRestored(ObjectName, Box<QuarantineLine>),
    /// A quarantine ended without an edit of its object.
    QuarantineReleased(ObjectName),
    /// The resolved addresses of a network gateway.
    GatewayHost(String, Option<Vec<IpAddr>>),
    /// From now on changes of objects with a rollout annotation are staged.
    Stages,
    /// From now on peers are found by address.
    FindPeers,
    /// A workload with a learned scope uses these hosts.
    Learned(LearnedLine, Vec<String>),
    /// An operator has deleted hosts that a workload has used.
    Forgotten(LearnedLine, Vec<String>),
    /// An order for a staged rollout.
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

/// A workload with a learned scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LearnedLine {
    /// Where its pods are.
    pub namespace: String,
    /// The service account that its pods run as.
    pub account: String,
    /// The name of its Deployment or other owner.
    pub name: String,
}

/// A quarantine that was read from its store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuarantineLine {
    /// `metadata.generation` of the rejected version.
    pub generation: i64,
    /// `metadata.uid` of the object.
    pub uid: String,
    /// The version that is served instead; `null` if there is none.
    pub before: Option<Value>,
    /// Who rejected it, with an excerpt of a proxy's error message.
    pub message: String,
}

/// An order for a staged rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RolloutLine {
    /// The index of the stage, and the proxies in addition to the stage's share.
    Stage(usize, Vec<String>),
    /// It was stopped, with the reason.
    Stop(String),
    /// All proxies have it.
    Complete,
    /// It was resumed: the new version, the previous one, and the progress.
    Restore(Value, Option<Value>, RolloutProgress),
}

/// The progress of a staged rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RolloutProgress {
    /// No proxy has it yet.
    Waiting,
    /// The index of the stage, and the proxies in addition to the stage's share.
    Stage(usize, Vec<String>),
    /// It was stopped, with the reason: no proxy has it any more.
    Stopped(String),
}

/// The identity of an object.
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

/// The source of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeyPlace {
    /// A JWKS URI.
    Uri(String),
    /// The JWKS URI from the issuer's OpenID Connect discovery.
    Issuer(String),
}

/// A proxy, from its node message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyLine {
    /// Its number, by which later lines refer to it.
    pub number: u64,
    /// When it connected.
    pub at: Moment,
    /// The id of its node.
    pub node: String,
    /// `node.cluster`: the name of its service.
    pub cluster: String,
    /// The metadata of its node.
    pub metadata: Value,
    /// Region, zone and sub-zone.
    pub locality: [String; 3],
    /// The extensions that it supports.
    pub extensions: Option<Vec<String>>,
    /// Whether its stream is delta xDS.
    pub deltas: bool,
    /// Its verified identity.
    pub identity: Option<String>,
    /// Whether its scope was learned when its stream started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_learned_scope: bool,
    /// Its peer address.
    pub peer: Option<IpAddr>,
}

/// The names of a subscription: all of them, or their difference to an earlier set of the segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameSet {
    /// Its number in the segment.
    pub set: u64,
    /// The set that this one is a difference to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Added names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    /// Removed names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// A subscription.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// When it was answered.
    pub at: Moment,
    /// As in the line of the proxy.
    pub proxy: u64,
    /// Istio's short name of the type, such as `cds`.
    pub r#type: String,
    /// Whether it is a wildcard subscription.
    pub wildcard: bool,
    /// The set of requested names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<u64>,
    /// The proxy unsubscribed before the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// The published collections.
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

/// A push of the inputs before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Push {
    /// When.
    pub at: Moment,
    /// The revision of the snapshot.
    pub revision: u64,
    /// All results were recomputed on request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// The published collections.
    pub pushes: Vec<PushGroup>,
}

/// Proxies with the same collection of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PushGroup {
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// The proxies: ranges of numbers, both ends included.
    pub proxies: Vec<[u64; 2]>,
    /// Resources of the collection.
    pub resources: usize,
    /// The digest of all of them.
    pub digest: String,
}

/// A line with only a time.
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

/// Proxies that acknowledged responses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Took {
    /// When, at the latest.
    pub at: Moment,
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// The proxies, in ranges.
    pub proxies: Vec<[u64; 2]>,
}

/// The NACK of a proxy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nack {
    /// When.
    pub at: Moment,
    /// The number of the proxy, as of the line that it came with.
    pub proxy: u64,
    /// The type by its short name: `cds`, `lds`.
    pub r#type: String,
    /// The error message.
    pub said: String,
}

/// The end of the initial state of a segment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Complete {
    /// When.
    pub at: Moment,
    /// The revision of the snapshot.
    pub revision: u64,
    /// Whether the initial state of all sources was complete.
    pub synced: bool,
    /// The collections of all proxies.
    pub pushes: Vec<PushGroup>,
}

/// Why events are missing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lost {
    /// When.
    pub at: Moment,
    /// The reason.
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

/// Expands [`ranges`], whose last numbers are included.
pub fn numbers(ranges: &[[u64; 2]]) -> impl Iterator<Item = u64> {
    ranges.iter().flat_map(|[first, last]| *first..=*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_encoding_as_ranges() {
        let written = ranges([5, 1, 2, 3, 9, 8]);
        assert_eq!(written, [[1, 3], [5, 5], [8, 9]]);
        assert_eq!(numbers(&written).collect::<Vec<_>>(), [1, 2, 3, 5, 8, 9]);
        assert_eq!(ranges([]), Vec::<[u64; 2]>::new());
    }
}
