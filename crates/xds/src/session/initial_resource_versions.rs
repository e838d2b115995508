//! The resources that a client has from an earlier stream (`initial_resource_versions`).
//!
//! A ztunnel that reconnects sends the name of every workload of the mesh. The names are
//! concatenated in one string, and looked up by their hashes: with a map of strings, parsing 77,000
//! of them took twice as long.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use bytes::Buf;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::google::rpc::Status as ErrorDetail;
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType};
use tonic::Status;

use super::discovery_request::{MAX_NAME_BYTES, MAX_NAMES};
use navarch_api::names::ResourceName;
use navarch_base::resource_version::Version;
use navarch_push::resource::Resource;
use navarch_tables::hash::{KeyedMap, keyed_hash};

/// Names and versions of a client's resources. If a name is repeated, the last one counts.
#[derive(Default)]
pub(crate) struct InitialVersions {
    /// All names, concatenated.
    names: String,
    entries: Vec<VersionEntry>,
    /// Equal for the same entries in any order: clients keep them in hash maps.
    digest: u64,
    /// The index of each name's entry: under its hash, or the next free number.
    places: OnceLock<KeyedMap<u64, usize>>,
}

#[derive(Clone, Copy)]
struct VersionEntry {
    /// The hash of the name. A request of a whole mesh has megabytes of names: each is hashed once,
    /// for the digest, the index, and the comparison with an interned copy.
    hash: u64,
    /// The start of the name in the concatenated names; it ends where the next name starts.
    begin: u32,
    /// `None` if this control plane did not make the version.
    version: Option<Version>,
}

/// `envoy.service.discovery.v3.DeltaDiscoveryRequest`, with `initial_resource_versions` not decoded
/// into a map.
#[derive(Debug, Default)]
pub(crate) struct DeltaDiscoveryRequest {
    pub(crate) fields: Fields,
    initial_versions: InitialVersions,
    /// The entry that is being decoded. Its strings are reused for the next.
    entry: WireEntry,
    /// The first error in `initial_resource_versions`.
    fault: Option<VersionsFault>,
}

/// All fields of a request except `initial_resource_versions`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Fields {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
    #[prost(string, tag = "2")]
    pub(crate) type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) resource_names_subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) resource_names_unsubscribe: Vec<String>,
    #[prost(string, tag = "6")]
    pub(crate) response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) error_detail: Option<ErrorDetail>,
}

/// The tag of `initial_resource_versions`.
const VERSIONS: u32 = 5;

/// An entry of `initial_resource_versions`.
#[derive(Clone, PartialEq, prost::Message)]
struct WireEntry {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, Copy, Debug)]
enum VersionsFault {
    TooMany,
    TooLong,
}

impl DeltaDiscoveryRequest {
    /// Returns the fields and `initial_resource_versions`.
    ///
    /// # Errors
    /// If `initial_resource_versions` exceed a limit.
    pub(crate) fn into_parts(self) -> Result<(Fields, InitialVersions), Status> {
        match self.fault {
            None => Ok((self.fields, self.initial_versions)),
            Some(VersionsFault::TooMany) => Err(Status::resource_exhausted(format!(
                "the request has more than {MAX_NAMES} initial resource versions"
            ))),
            Some(VersionsFault::TooLong) => Err(Status::invalid_argument(format!(
                "a resource name exceeds {MAX_NAME_BYTES} bytes"
            ))),
        }
    }

    /// Adds the decoded entry.
    fn add_entry(&mut self) {
        let WireEntry { name, version } = &self.entry;
        if name.len() > MAX_NAME_BYTES {
            self.fault.get_or_insert(VersionsFault::TooLong);
        } else if self.initial_versions.entries.len() >= MAX_NAMES {
            self.fault.get_or_insert(VersionsFault::TooMany);
        } else {
            self.initial_versions.add(name, Version::parse(version));
        }
    }
}

impl prost::Message for DeltaDiscoveryRequest {
    fn encode_raw(&self, buffer: &mut impl bytes::BufMut) {
        // Requests are never encoded here.
        self.fields.encode_raw(buffer);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag != VERSIONS {
            return self.fields.merge_field(tag, wire_type, buffer, context);
        }
        prost::Message::clear(&mut self.entry);
        prost::encoding::message::merge(wire_type, &mut self.entry, buffer, context)?;
        self.add_entry();
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.fields.encoded_len()
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl InitialVersions {
    fn add(&mut self, name: &str, version: Option<Version>) {
        let begin = u32::try_from(self.names.len()).expect(
            "the reader limits number and length of names: together they are less than 4 GiB",
        );
        let hash = keyed_hash(name);
        self.names.push_str(name);
        self.entries.push(VersionEntry {
            hash,
            begin,
            version,
        });
        self.digest = self.digest.wrapping_add(keyed_hash(&(hash, version)));
    }

    /// The name of an entry.
    fn name(&self, place: usize) -> &str {
        let begin = |place: usize| {
            self.entries
                .get(place)
                .map_or(self.names.len(), |entry| entry.begin as usize)
        };
        self.names
            .get(begin(place)..begin(place + 1))
            .expect("entries begin in order and at whole names")
    }

    /// The index of each name's entry.
    fn places(&self) -> &KeyedMap<u64, usize> {
        self.places.get_or_init(|| {
            let mut places =
                KeyedMap::with_capacity_and_hasher(self.entries.len(), Default::default());
            for (place, entry) in self.entries.iter().enumerate() {
                let name = self.name(place);
                let mut hash = entry.hash;
                while places
                    .get(&hash)
                    .is_some_and(|other| self.name(*other) != name)
                {
                    hash = hash.wrapping_add(1);
                }
                places.insert(hash, place);
            }
            places
        })
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.find_hashed(name, keyed_hash(name))
    }

    /// The index of the entry of a name with this hash.
    fn find_hashed(&self, name: &str, mut hash: u64) -> Option<usize> {
        let places = self.places();
        loop {
            let place = *places.get(&hash)?;
            if self.name(place) == name {
                return Some(place);
            }
            hash = hash.wrapping_add(1);
        }
    }

    fn version(&self, place: usize) -> Option<Version> {
        self.entries.get(place)?.version
    }

    /// The names, in no order, possibly with duplicates.
    pub(crate) fn names(&self) -> impl Iterator<Item = ResourceName> {
        (0..self.entries.len()).map(|place| ResourceName::new(self.name(place)))
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        /// Bytes per entry of `places`, whose capacity is up to twice its length.
        const PLACE: usize = 2 * size_of::<(u64, usize)>();
        self.names.capacity()
            + self.entries.capacity() * size_of::<VersionEntry>()
            + self.entries.len() * PLACE
    }

    /// Whether there are no names.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the client has this resource.
    pub(crate) fn contains(&self, name: &ResourceName) -> bool {
        self.find(name.as_str()).is_some()
    }

    /// Calls `each` for those of `resources` that the client does not have in this version. Returns
    /// the sorted names of the client's other resources.
    pub(crate) fn compare<'a, R: AsRef<Resource> + 'a>(
        &self,
        resources: impl Iterator<Item = &'a R>,
        mut each: impl FnMut(&R),
    ) -> Vec<ResourceName> {
        let mut there = vec![false; self.entries.len()];
        let mut count = 0;

        for resource in resources {
            let Resource { name, version, .. } = resource.as_ref();
            let had = self.find(name.as_str());
            if let Some(there) = had.and_then(|place| there.get_mut(place)) {
                *there = true;
                count += 1;
            }
            if had.and_then(|place| self.version(place)) != Some(*version) {
                each(resource);
            }
        }

        if count == self.places().len() {
            return Vec::new();
        }

        let gone = self
            .places()
            .values()
            .filter(|place| there.get(**place) == Some(&false));
        let mut gone: Vec<ResourceName> = gone
            .map(|place| ResourceName::new(self.name(*place)))
            .collect();
        gone.sort_unstable();

        gone
    }
}

impl PartialEq for InitialVersions {
    fn eq(&self, other: &Self) -> bool {
        if self.digest != other.digest || self.entries.len() != other.entries.len() {
            return false;
        }
        // Both have the same number of entries, and each entry of the other matches a different one
        // here. Sets with duplicate names compare as different, which costs memory but is correct.
        let mut seen = vec![false; self.entries.len()];
        other.entries.iter().enumerate().all(|(place, entry)| {
            let own = self.find_hashed(other.name(place), entry.hash);
            own.is_some_and(|own| {
                let is_new = seen
                    .get_mut(own)
                    .is_some_and(|seen| !std::mem::replace(seen, true));
                is_new && self.version(own) == entry.version
            })
        })
    }
}

impl Eq for InitialVersions {}

impl Hash for InitialVersions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
        state.write_usize(self.entries.len());
    }
}

impl fmt::Debug for InitialVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = (0..self.entries.len()).map(|place| (self.name(place), self.version(place)));
        f.debug_map().entries(entries).finish()
    }
}

/// Parses values of tests as if they came from the wire.
#[cfg(test)]
impl super::discovery_request::Wire for Sent {
    const PROTOCOL: super::discovery_request::Protocol = super::discovery_request::Protocol::Delta;

    fn node(&mut self) -> &mut Option<Node> {
        &mut self.node
    }

    fn is_health(&self) -> bool {
        false
    }

    fn parse(self) -> Result<super::discovery_request::Request, Status> {
        let read: DeltaDiscoveryRequest =
            prost::Message::decode(prost::Message::encode_to_vec(&self).as_slice())
                .map_err(|error| Status::internal(error.to_string()))?;
        read.parse()
    }
}

#[cfg(test)]
use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest as Sent;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use navarch_base::interned::Interned;
    use navarch_push::resource::ResourceType;
    use prost::Message as _;
    use tonic::Code;

    use super::*;

    const VERSION: &str = "0123456789abcdef0123456789abcdef";

    /// What comes of these entries on the wire, in this order.
    fn read(entries: &[(&str, &str)]) -> Result<(Fields, InitialVersions), Status> {
        let mut bytes = Sent {
            type_url: "t".to_owned(),
            ..Sent::default()
        }
        .encode_to_vec();

        for (name, version) in entries {
            let entry = [((*name).to_owned(), (*version).to_owned())];
            let one = Sent {
                initial_resource_versions: entry.into_iter().collect(),
                ..Sent::default()
            };
            bytes.extend(one.encode_to_vec());
        }

        bytes.extend(
            Sent {
                response_nonce: "n".to_owned(),
                ..Sent::default()
            }
            .encode_to_vec(),
        );

        DeltaDiscoveryRequest::decode(bytes.as_slice())
            .unwrap()
            .into_parts()
    }

    fn initial_versions(entries: &[(&str, &str)]) -> InitialVersions {
        read(entries).unwrap().1
    }

    fn resource(name: &str, body: &str) -> Arc<Resource> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        Arc::new(Resource::new(
            ResourceType::Cluster,
            ResourceName::new(name),
            body,
        ))
    }

    /// What the client is sent, and what it must forget.
    fn compared(
        initial_versions: &InitialVersions,
        resources: &[Arc<Resource>],
    ) -> (Vec<String>, Vec<String>) {
        let mut sent = Vec::new();
        let gone = initial_versions.compare(resources.iter(), |resource| {
            sent.push(resource.name.to_string())
        });
        (sent, gone.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn names_and_versions_are_read_and_all_else_stays() {
        let (fields, initial_versions) = read(&[("b", VERSION), ("", "7"), ("ä", "")]).unwrap();
        assert_eq!(
            (fields.type_url.as_str(), fields.response_nonce.as_str()),
            ("t", "n")
        );
        assert_eq!(initial_versions.names().collect::<Vec<_>>(), ["b", "", "ä"]);
        let version = |name: &str| {
            initial_versions
                .find(name)
                .map(|place| initial_versions.version(place))
        };
        assert_eq!(version("b"), Some(Version::parse(VERSION)));

        assert!(Version::parse(VERSION).is_some());
        assert_eq!(
            (version(""), version("ä"), version("bä")),
            (Some(None), Some(None), None)
        );
        assert!(
            initial_versions.contains(&ResourceName::new("ä"))
                && !initial_versions.contains(&ResourceName::new("c"))
        );
    }

    #[test]
    fn new_and_changed_resources_are_sent_and_removed_ones_listed() {
        let [same, other, new, foreign] =
            ["same", "other", "new", "foreign"].map(|name| resource(name, name));
        let same_version = same.version.to_string();
        let old = resource("x", "old").version.to_string();
        let had = initial_versions(&[
            ("z-gone", &old),
            ("foreign", "not ours"),
            ("other", &old),
            ("same", &same_version),
            ("a-gone", "not ours"),
        ]);
        let resources = [foreign, new, other, same];
        let expected = (
            ["foreign", "new", "other"].map(String::from).to_vec(),
            ["a-gone", "z-gone"].map(String::from).to_vec(),
        );
        assert_eq!(compared(&had, &resources), expected);
    }

    #[test]
    fn the_last_of_equal_names_counts() {
        let now = resource("a", "now");
        let (version, old) = (
            now.version.to_string(),
            resource("a", "old").version.to_string(),
        );
        for (entries, sent) in [
            ([("a", &*old), ("a", &*version)], 0),
            ([("a", &*version), ("a", &*old)], 1),
        ] {
            let (changed, gone) = compared(&initial_versions(&entries), std::slice::from_ref(&now));
            assert_eq!((changed.len(), gone.len()), (sent, 0), "{entries:?}");
            assert_eq!(compared(&initial_versions(&entries), &[]).1, ["a"]);
        }
    }

    #[test]
    fn equal_version_lists_are_interned_in_any_order() {
        let of = |numbers: &[u32]| {
            let names: Vec<String> = numbers.iter().map(u32::to_string).collect();
            Arc::new(initial_versions(
                &names
                    .iter()
                    .map(|name| (&**name, VERSION))
                    .collect::<Vec<_>>(),
            ))
        };

        let interned = Interned::default();
        let known = interned.intern(&of(&[1, 2, 3]));
        assert!(Arc::ptr_eq(&known, &interned.intern(&of(&[3, 1, 2]))));

        for other in [
            of(&[1, 2]),
            of(&[1, 2, 4]),
            of(&[1, 2, 2]),
            of(&[1, 23]),
            Arc::new(initial_versions(&[("1", "")])),
        ] {
            assert!(known != other && !Arc::ptr_eq(&known, &interned.intern(&other)));
        }
    }

    #[test]
    fn too_many_or_too_long_names_and_invalid_utf8_are_rejected() {
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| number.to_string()).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "")).collect();
        assert_eq!(read(&many).unwrap_err().code(), Code::ResourceExhausted);
        let (_, last) = many.split_first().unwrap();
        assert_eq!(compared(&initial_versions(last), &[]).1.len(), MAX_NAMES);
        assert_eq!(
            read(&[(&"x".repeat(MAX_NAME_BYTES + 1), "")])
                .unwrap_err()
                .code(),
            Code::InvalidArgument
        );
        // Field 5, an entry of four bytes whose name is the byte 255.
        assert!(DeltaDiscoveryRequest::decode(&[0x2a, 3, 0x0a, 1, 0xff][..]).is_err());
    }
}
