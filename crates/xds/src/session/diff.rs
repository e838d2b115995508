//! The difference between the state of a client and the wanted state.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use navarch_proto::raw::{RawAny, RawDeltaDiscoveryResponse, RawDiscoveryResponse, RawResource};
use prost::Message;

use crate::session::aliases::aliases_of;
use crate::session::initial_resource_versions::InitialVersions;
use crate::session::payload::{HeldBytes, Payload};
use navarch_api::names::ResourceName;
use navarch_push::resource::{Collection, Resource, ResourceType};

/// A set of names that several streams share.
pub(crate) type Names = Arc<BTreeSet<ResourceName>>;

/// The resources of one type that a client has, as far as is known.
#[derive(Clone, Debug, Default)]
pub(crate) enum Base {
    #[default]
    Nothing,
    /// The resources that were sent on this stream.
    Sent(Arc<Collection>),
    /// The resources of an earlier stream (`initial_resource_versions`).
    InitialVersions(Arc<InitialVersions>),
}

/// A name to remove from a client, with the resource if it was sent on this stream.
pub(crate) type Removal = (ResourceName, Option<Arc<Resource>>);

/// How a client subscribes to the resources of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscribedBy {
    ForAll,
    /// By name, one of those of each resource: the other names are sent as aliases.
    ByName,
}

/// Whether delta responses have the version of each resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    Sent,
    /// The client computes them ([`OMIT_VERSIONS`](navarch_base::resource_version::OMIT_VERSIONS)).
    Omitted,
}

/// One step from a [`Base`] to a collection.
#[derive(Debug)]
pub(crate) struct Diff {
    /// Resources that are new, changed or forced; sorted by name.
    pub(crate) resources: Vec<Arc<Resource>>,
    /// Resources of the client that no longer exist; sorted by name.
    pub(crate) removed: Vec<Removal>,
    /// The endpoint sets that the clusters among `resources` wait for.
    pub(crate) warming: Names,
    /// `resources` encoded for a delta response, at first use.
    delta: OnceLock<Payload>,
    /// The same without versions, at first use.
    delta_without_versions: OnceLock<Payload>,
    /// `resources` encoded for a state-of-the-world response, at first use.
    state: OnceLock<Payload>,
    /// All resources and those in `removed`, encoded for a state-of-the-world response, at first
    /// use.
    keeping: OnceLock<Payload>,
}

/// The fields of a cluster that name its endpoint set. Other fields are skipped.
#[derive(Clone, PartialEq, prost::Message)]
struct ClusterFields {
    /// `type`.
    #[prost(int32, optional, tag = "2")]
    discovery: Option<i32>,
    /// `eds_cluster_config`.
    #[prost(message, optional, tag = "3")]
    eds: Option<EdsFields>,
}

/// `Cluster.EdsClusterConfig`.
#[derive(Clone, PartialEq, prost::Message)]
struct EdsFields {
    /// `service_name`; the cluster's name if empty.
    #[prost(string, tag = "2")]
    service_name: String,
}

/// `Cluster.DiscoveryType.EDS`.
const DISCOVERY_EDS: i32 = 3;

impl Base {
    /// Whether the client has a resource with this name.
    pub(crate) fn contains(&self, name: &ResourceName) -> bool {
        match self {
            Self::Nothing => false,
            Self::Sent(collection) => find(collection, name).is_some(),
            Self::InitialVersions(initial_versions) => initial_versions.contains(name),
        }
    }

    /// The names of the client's resources.
    pub(crate) fn names(&self) -> impl Iterator<Item = ResourceName> {
        let (sent, initial_versions) = match self {
            Self::Nothing => (None, None),
            Self::Sent(collection) => (Some(collection), None),
            Self::InitialVersions(initial_versions) => (None, Some(initial_versions)),
        };
        let sent = sent
            .into_iter()
            .flat_map(|collection| &collection.resources)
            .map(|resource| resource.name.clone());
        sent.chain(
            initial_versions
                .into_iter()
                .flat_map(|initial_versions| initial_versions.names()),
        )
    }

    /// Whether it is exactly this collection, by identity.
    pub(crate) fn is(&self, collection: &Arc<Collection>) -> bool {
        match self {
            Self::Sent(sent) => Arc::ptr_eq(sent, collection),
            Self::Nothing | Self::InitialVersions(_) => false,
        }
    }
}

/// The `names` without a resource. Walks over both sets.
pub(crate) fn missing(
    names: &BTreeSet<ResourceName>,
    collection: &Collection,
) -> BTreeSet<ResourceName> {
    if let Some(unknown) = &collection.unknown {
        return names.intersection(unknown).cloned().collect();
    }
    let mut missing = BTreeSet::new();
    if names.is_empty() {
        return missing;
    }
    walk(
        names.iter().map(|name| (name, ())),
        collection.resources.iter(),
        |_, _| {},
        |name, ()| {
            missing.insert(name.clone());
        },
    );
    missing
}

/// The names of the resources whose aliases are in `requested`. Walks over all resources of types
/// with aliases, unless `requested` is empty.
pub(crate) fn names_of_aliases(
    requested: &BTreeSet<ResourceName>,
    collection: &Collection,
) -> Vec<ResourceName> {
    if requested.is_empty() || !collection.resource_type.is_by_address() {
        return Vec::new();
    }
    let has_alias = |resource: &&Arc<Resource>| {
        aliases_of(resource)
            .iter()
            .any(|alias| requested.contains(alias.as_str()))
    };
    collection
        .resources
        .iter()
        .filter(has_alias)
        .map(|resource| resource.name.clone())
        .collect()
}

pub(crate) fn find<'a>(
    collection: &'a Collection,
    name: &ResourceName,
) -> Option<&'a Arc<Resource>> {
    collection.resources.find(name)
}

impl Diff {
    /// Computes the diff. `forced` are sent even if unchanged. Walks over the entries that the two
    /// sides do not share.
    pub(crate) fn between(
        base: &Base,
        latest: &Collection,
        forced: Option<&BTreeSet<ResourceName>>,
    ) -> Self {
        let mut resources: Vec<Arc<Resource>> = Vec::new();
        let mut removed = Vec::new();

        match base {
            Base::Nothing => resources.extend(latest.resources.iter().cloned()),
            Base::Sent(sent) => {
                let [before, now] = sent.resources.apart(&latest.resources);
                walk(
                    before.map(|old| (&old.name, old)),
                    now,
                    |new, old| {
                        if old
                            .is_none_or(|old| !Arc::ptr_eq(old, new) && old.version != new.version)
                        {
                            resources.push(new.clone());
                        }
                    },
                    |name, old| removed.push((name.clone(), Some(old.clone()))),
                );
            }
            Base::InitialVersions(initial_versions) => {
                let gone = initial_versions
                    .compare(latest.resources.iter(), |new| resources.push(new.clone()));
                removed.extend(gone.into_iter().map(|name| (name, None)));
            }
        }

        if let (Base::InitialVersions(_), Some(unknown)) = (base, &latest.unknown) {
            // For a client that subscribes by address, the base contains the addresses of its
            // subscription.
            removed.retain(|(name, _): &Removal| !is_address(name) || unknown.contains(name));
        }

        if let Some(forced) = forced {
            resources.extend(forced.iter().filter_map(|name| find(latest, name)).cloned());
            resources.sort_by(|a, b| a.name.cmp(&b.name));
            resources.dedup_by(|a, b| a.name == b.name);
        }

        let warming = Arc::new(
            resources
                .iter()
                .filter_map(|resource| required_endpoints(resource))
                .collect(),
        );

        Self {
            resources,
            removed,
            warming,
            delta: OnceLock::new(),
            delta_without_versions: OnceLock::new(),
            state: OnceLock::new(),
            keeping: OnceLock::new(),
        }
    }

    /// Bytes of the resources' bodies.
    pub(crate) fn size(&self) -> usize {
        self.resources
            .iter()
            .map(|resource| resource.body.len())
            .sum()
    }

    /// The endpoint sets that the removed clusters waited for, as far as they are known.
    pub(crate) fn removed_endpoints(&self) -> BTreeSet<ResourceName> {
        let removed = self
            .removed
            .iter()
            .filter_map(|(_, cluster)| cluster.as_ref());
        removed
            .filter_map(|cluster| required_endpoints(cluster))
            .collect()
    }

    /// Bytes that the encoded forms of this diff hold.
    pub(crate) fn held(&self) -> HeldBytes {
        let payloads = [
            &self.delta,
            &self.delta_without_versions,
            &self.state,
            &self.keeping,
        ];
        payloads
            .into_iter()
            .filter_map(OnceLock::get)
            .map(Payload::held)
            .sum()
    }

    /// The changed resources as the `resources` of a delta response. All streams that share this
    /// diff have the same `subscribed_by`.
    pub(crate) fn delta(&self, subscribed_by: SubscribedBy, versions: Versions) -> Payload {
        let form = match versions {
            Versions::Sent => &self.delta,
            Versions::Omitted => &self.delta_without_versions,
        };
        form.get_or_init(|| encode_delta(&self.resources, subscribed_by, versions))
            .clone()
    }

    /// The changed resources as the `resources` of a state-of-the-world response.
    pub(crate) fn state(&self) -> Payload {
        self.state
            .get_or_init(|| encode_state(&self.resources))
            .clone()
    }

    /// All of `latest`, the target of this diff, and the removed resources, as the `resources` of a
    /// state-of-the-world response.
    pub(crate) fn keeping(&self, latest: &Collection) -> Payload {
        self.keeping
            .get_or_init(|| {
                encode_keeping(
                    latest,
                    self.removed.iter().filter_map(|(_, old)| old.clone()),
                )
            })
            .clone()
    }
}

/// Whether a name is `network/address`.
fn is_address(name: &ResourceName) -> bool {
    name.as_str()
        .split_once('/')
        .is_some_and(|(_, address)| address.parse::<IpAddr>().is_ok())
}

/// Merges old and new, both sorted by name: calls `each` for every new entry with the old one, and
/// `gone` for every old entry without a new one.
fn walk<'a, T>(
    old: impl Iterator<Item = (&'a ResourceName, T)>,
    new: impl Iterator<Item = &'a Arc<Resource>>,
    mut each: impl FnMut(&Arc<Resource>, Option<T>),
    mut gone: impl FnMut(&ResourceName, T),
) {
    let mut old = old.peekable();
    for resource in new {
        while let Some((name, value)) = old.next_if(|(name, _)| **name < resource.name) {
            gone(name, value);
        }
        let before = old
            .next_if(|(name, _)| **name == resource.name)
            .map(|(_, value)| value);
        each(resource, before);
    }
    for (name, value) in old {
        gone(name, value);
    }
}

/// The endpoint set that a resource waits for before it can be used, if it is a cluster with
/// endpoints from EDS.
pub(crate) fn required_endpoints(resource: &Resource) -> Option<ResourceName> {
    if resource.resource_type != ResourceType::Cluster {
        return None;
    }
    let snapshot = ClusterFields::decode(resource.body.clone()).ok()?;
    if snapshot.discovery != Some(DISCOVERY_EDS) {
        return None;
    }
    match snapshot.eds {
        Some(eds) if !eds.service_name.is_empty() => Some(ResourceName::new(eds.service_name)),
        Some(_) | None => Some(resource.name.clone()),
    }
}

/// The `resources` field of a delta response.
fn encode_delta(
    resources: &[Arc<Resource>],
    subscribed_by: SubscribedBy,
    versions: Versions,
) -> Payload {
    let resource_type = type_of(resources);
    let resources = resources
        .iter()
        .map(|resource| RawResource {
            version: match versions {
                Versions::Sent => resource.version.to_string(),
                Versions::Omitted => String::new(),
            },
            resource: Some(any(resource)),
            name: resource.name.as_str().to_owned(),
            aliases: match subscribed_by {
                SubscribedBy::ByName => aliases_of(resource),
                SubscribedBy::ForAll => Vec::new(),
            },
        })
        .collect();

    let response = RawDeltaDiscoveryResponse {
        resources,
        ..RawDeltaDiscoveryResponse::default()
    };
    Payload::new(resource_type, response.encode_to_vec().into())
}

/// The `resources` field of a state-of-the-world response.
fn encode_state(resources: &[Arc<Resource>]) -> Payload {
    let resource_type = type_of(resources);
    let resources = resources.iter().map(|resource| any(resource)).collect();
    let response = RawDiscoveryResponse {
        resources,
        ..RawDiscoveryResponse::default()
    };
    Payload::new(resource_type, response.encode_to_vec().into())
}

/// The `resources` field of a state-of-the-world response with all of `latest` and the `leaving`
/// resources.
pub(crate) fn encode_keeping(
    latest: &Collection,
    leaving: impl Iterator<Item = Arc<Resource>>,
) -> Payload {
    let mut all: Vec<Arc<Resource>> = latest.resources.iter().cloned().chain(leaving).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    encode_state(&all)
}

/// The type of the resources of one response; `None` if there are none.
fn type_of(resources: &[Arc<Resource>]) -> Option<ResourceType> {
    resources.first().map(|resource| resource.resource_type)
}

/// A resource with its type URL. Shares the bytes.
fn any(resource: &Resource) -> RawAny {
    RawAny {
        type_url: resource.resource_type.resource_url().to_owned(),
        value: resource.body.clone(),
    }
}
