//! Encoding of changes, and the current inputs, which are the initial state of a segment.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, decode_value};
use navarch_api::encode::encode_value;
use navarch_api::key_source::KeySource;
use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::names::{ClusterId, Hostname, Namespace, ServiceAccount};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::uid::Uid;
use navarch_push::context::PushContext;
use navarch_push::learned::LearnedChange;
use navarch_push::mesh_state::{Change, RemoteChange};
use navarch_push::observer::Before;
use navarch_push::quarantine::RestoredQuarantine;
use navarch_push::rollout::RolloutCommand;

use super::format::{Account, Input, KeyPlace, LearnedLine, ObjectName, QuarantineLine};
use super::redact::Redactor;
use super::restore::Restorer;
use super::rollout;

#[derive(Debug, Default)]
pub(crate) struct Inputs {
    objects: BTreeMap<ObjectRef, AnyObject>,
    remotes: BTreeMap<ClusterId, BTreeMap<ObjectRef, AnyObject>>,
    mesh: Option<Arc<MeshConfig>>,
    networks: Option<Arc<MeshNetworks>>,
    readers: BTreeMap<NamespacedName, bool>,
    remote_readers: BTreeMap<(ClusterId, NamespacedName), bool>,
    keys: BTreeMap<KeySource, Arc<str>>,
    roots: Arc<[Arc<str>]>,
    hosts: BTreeMap<Arc<str>, Arc<[IpAddr]>>,
    /// Whether changes are staged.
    stages: bool,
    /// Whether peers are found by address.
    finds_peers: bool,
}

impl Inputs {
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(object) => _ = self.objects.insert(object.object_ref(), object.clone()),
            Change::Removed(name) => _ = self.objects.remove(name),
            Change::Mesh(config) => self.mesh = Some(config.clone()),
            Change::Networks(networks) => self.networks = Some(networks.clone()),
            Change::SecretReader(account, may) => set(&mut self.readers, account, may.as_ref()),
            Change::Keys(source, keys) => set(&mut self.keys, source, keys.as_ref()),
            Change::TrustBundle(roots) => self.roots = roots.clone(),
            Change::Stages => self.stages = true,
            Change::FindPeers => self.finds_peers = true,
            // Quarantine, rollouts and learned hosts are taken from the snapshot.
            Change::Quarantine(..)
            | Change::RestoreQuarantine(..)
            | Change::ReleaseQuarantine(_)
            | Change::Rollout(..)
            | Change::Learned(..) => {}
            Change::GatewayHost(host, addresses) => set(&mut self.hosts, host, addresses.as_ref()),
            Change::Remote(cluster, change) => self.apply_remote(cluster, change),
        }
    }

    fn apply_remote(&mut self, cluster: &ClusterId, change: &RemoteChange) {
        match change {
            RemoteChange::Gone => _ = self.remotes.remove(cluster),

            RemoteChange::SecretReader(account, may) => {
                set(
                    &mut self.remote_readers,
                    &(cluster.clone(), account.clone()),
                    may.as_ref(),
                );
            }

            RemoteChange::Put(object) => {
                let objects = self.remotes.entry(cluster.clone()).or_default();
                objects.insert(object.object_ref(), object.clone());
            }

            RemoteChange::Removed(name) => {
                self.remotes
                    .entry(cluster.clone())
                    .or_default()
                    .remove(name);
            }

            RemoteChange::Reset(objects) => {
                let all = objects
                    .iter()
                    .map(|object| (object.object_ref(), object.clone()))
                    .collect();
                self.remotes.insert(cluster.clone(), all);
            }
        }
    }

    /// Changes that recreate the current inputs, the quarantine of this snapshot included.
    pub(crate) fn all(&self, context: &PushContext, before: &Before) -> Vec<Change> {
        let mut all: Vec<Change> = self
            .mesh
            .iter()
            .map(|config| Change::Mesh(config.clone()))
            .collect();

        all.extend(
            self.networks
                .iter()
                .map(|networks| Change::Networks(networks.clone())),
        );
        all.push(Change::TrustBundle(self.roots.clone()));
        all.extend(
            self.readers
                .iter()
                .map(|(account, may)| Change::SecretReader(account.clone(), Some(*may))),
        );

        all.extend(
            self.keys
                .iter()
                .map(|(source, keys)| Change::Keys(source.clone(), Some(keys.clone()))),
        );
        let hosts = self.hosts.iter();
        all.extend(
            hosts.map(|(host, addresses)| {
                Change::GatewayHost(host.clone(), Some(addresses.clone()))
            }),
        );

        let remembered: BTreeMap<&ObjectRef, &Option<AnyObject>> =
            before.iter().map(|(name, good)| (name, good)).collect();
        let others = self
            .objects
            .iter()
            .filter(|(name, _)| !remembered.contains_key(name));
        all.extend(others.map(|(_, object)| Change::Put(object.clone())));

        // In the order of eviction: first the previous versions, then the current ones.
        for (name, good) in &**before {
            all.extend(good.iter().cloned().map(Change::Put));
            all.extend(self.objects.get(name).cloned().map(Change::Put));
        }

        for (cluster, objects) in &self.remotes {
            let reset = RemoteChange::Reset(objects.values().cloned().collect());
            all.push(Change::Remote(cluster.clone(), reset));
        }

        for ((cluster, account), may) in &self.remote_readers {
            let reader = RemoteChange::SecretReader(account.clone(), Some(*may));
            all.push(Change::Remote(cluster.clone(), reader));
        }

        for (name, how) in &context.quarantined {
            let Some(written) = self.objects.get(name) else {
                continue;
            };
            let restored = RestoredQuarantine {
                generation: how.generation,
                uid: written.meta().uid.clone(),
                before: context.objects.any(name),
                message: how.message.clone(),
            };
            all.push(Change::RestoreQuarantine(name.clone(), Arc::new(restored)));
        }

        for (name, rollout) in &context.rollouts {
            let Some(new) = context.new_versions.any(name) else {
                continue;
            };
            let before = context.objects.any(name);
            let progress = rollout.progress.clone();
            all.push(Change::Rollout(
                name.clone(),
                Arc::new(RolloutCommand::Restore {
                    new,
                    before,
                    progress,
                }),
            ));
        }

        all.extend(self.stages.then_some(Change::Stages));
        all.extend(self.finds_peers.then_some(Change::FindPeers));
        all.extend(context.learned.iter().map(|(workload, hosts)| {
            let added = LearnedChange::Add((**hosts).clone());
            Change::Learned(workload.clone(), added)
        }));
        all
    }
}

/// Sets or removes the value of a key.
fn set<K: Ord + Clone, V: Clone>(map: &mut BTreeMap<K, V>, key: &K, value: Option<&V>) {
    match value {
        Some(value) => _ = map.insert(key.clone(), value.clone()),
        None => _ = map.remove(key),
    }
}

/// Errors of decoding an input.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// Its kind is unknown to this version.
    #[error("{0} is of an unsupported kind")]
    Kind(String),
    /// The object is invalid.
    #[error("failed to parse {object}: {reason}")]
    Object { object: String, reason: String },
}

/// Encodes a change.
pub(crate) fn written(change: &Change, redactor: &Redactor) -> Result<Input, serde_json::Error> {
    let object = |object: &AnyObject| encode_value(&redactor.redact(object));

    Ok(match change {
        Change::Put(put) => Input::Put(object(put)?),
        Change::Removed(name) => Input::Removed(name_of(name)),
        Change::Mesh(config) => Input::Mesh(Box::new((**config).clone())),
        Change::Networks(networks) => Input::Networks((**networks).clone()),
        Change::SecretReader(account, may) => Input::SecretReader(account_of(account), *may),

        Change::Keys(source, keys) => {
            let place = match source {
                KeySource::Uri(uri) => KeyPlace::Uri(uri.to_string()),
                KeySource::Issuer(issuer) => KeyPlace::Issuer(issuer.to_string()),
            };
            Input::Keys(place, keys.as_deref().map(str::to_owned))
        }

        Change::TrustBundle(roots) => Input::Roots(roots.iter().map(ToString::to_string).collect()),

        Change::Quarantine(name, message) => Input::Quarantine(name_of(name), message.to_string()),
        Change::RestoreQuarantine(name, restored) => {
            let line = QuarantineLine {
                generation: restored.generation,
                uid: restored.uid.to_string(),
                before: restored.before.as_ref().map(object).transpose()?,
                message: restored.message.to_string(),
            };
            Input::QuarantineRestored(name_of(name), Box::new(line))
        }
        Change::ReleaseQuarantine(name) => Input::QuarantineReleased(name_of(name)),

        Change::Stages => Input::Stages,
        Change::FindPeers => Input::FindPeers,
        Change::Learned(workload, LearnedChange::Add(hosts)) => {
            Input::Learned(line_of(workload), texts_of(hosts))
        }
        Change::Learned(workload, LearnedChange::Forget(hosts)) => {
            Input::Forgotten(line_of(workload), texts_of(hosts))
        }
        Change::Rollout(name, command) => {
            Input::Rollout(name_of(name), Box::new(rollout::written(command, object)?))
        }

        Change::GatewayHost(host, addresses) => {
            Input::GatewayHost(host.to_string(), addresses.as_ref().map(|all| all.to_vec()))
        }
        Change::Remote(cluster, change) => {
            let cluster = cluster.as_str().to_owned();
            match change {
                RemoteChange::Put(put) => Input::RemotePut(cluster, object(put)?),
                RemoteChange::Removed(name) => Input::RemoteRemoved(cluster, name_of(name)),
                RemoteChange::Reset(all) => {
                    Input::RemoteReset(cluster, all.iter().map(object).collect::<Result<_, _>>()?)
                }
                RemoteChange::Gone => Input::RemoteGone(cluster),
                RemoteChange::SecretReader(account, may) => {
                    Input::RemoteSecretReader(cluster, account_of(account), *may)
                }
            }
        }
    })
}

/// Decodes a change.
pub(crate) fn read(input: Input, restorer: &Restorer) -> Result<Change, InputError> {
    let object = |value| object_of(&value).map(|object| restorer.restore(object));
    let account = |account: Account| NamespacedName::new(&account.namespace, &account.name);
    let remote = |cluster: String, change| Change::Remote(ClusterId::new(cluster), change);

    Ok(match input {
        Input::Put(value) => Change::Put(object(value)?),
        Input::Removed(name) => Change::Removed(ref_of(&name)?),
        Input::Mesh(config) => Change::Mesh(Arc::new(*config)),
        Input::Networks(networks) => Change::Networks(Arc::new(networks)),
        Input::SecretReader(of, may) => Change::SecretReader(account(of), may),

        Input::Keys(KeyPlace::Uri(uri), keys) => {
            Change::Keys(KeySource::Uri(uri.into()), keys.map(Into::into))
        }
        Input::Keys(KeyPlace::Issuer(of), keys) => {
            Change::Keys(KeySource::Issuer(of.into()), keys.map(Into::into))
        }

        Input::Roots(roots) => Change::TrustBundle(roots.into_iter().map(Arc::from).collect()),

        Input::Quarantine(name, message) => Change::Quarantine(ref_of(&name)?, message.into()),
        Input::QuarantineRestored(name, line) => {
            let restored = RestoredQuarantine {
                generation: line.generation,
                uid: Uid::new(&line.uid),
                before: line.before.map(object).transpose()?,
                message: line.message.into(),
            };
            Change::RestoreQuarantine(ref_of(&name)?, Arc::new(restored))
        }
        Input::QuarantineReleased(name) => Change::ReleaseQuarantine(ref_of(&name)?),

        Input::GatewayHost(host, addresses) => {
            Change::GatewayHost(host.into(), addresses.map(Into::into))
        }
        Input::Stages => Change::Stages,
        Input::FindPeers => Change::FindPeers,
        Input::Learned(of, hosts) => {
            Change::Learned(workload_of(&of), LearnedChange::Add(hosts_of(hosts)))
        }
        Input::Forgotten(of, hosts) => {
            Change::Learned(workload_of(&of), LearnedChange::Forget(hosts_of(hosts)))
        }
        Input::Rollout(name, line) => {
            Change::Rollout(ref_of(&name)?, Arc::new(rollout::read(*line, object)?))
        }

        Input::RemotePut(cluster, value) => remote(cluster, RemoteChange::Put(object(value)?)),
        Input::RemoteRemoved(cluster, name) => {
            remote(cluster, RemoteChange::Removed(ref_of(&name)?))
        }
        Input::RemoteReset(cluster, all) => {
            let all = all.into_iter().map(object).collect::<Result<_, _>>()?;
            remote(cluster, RemoteChange::Reset(all))
        }
        Input::RemoteGone(cluster) => remote(cluster, RemoteChange::Gone),
        Input::RemoteSecretReader(cluster, of, may) => {
            remote(cluster, RemoteChange::SecretReader(account(of), may))
        }
    })
}

/// A workload with a learned scope in the recording format.
fn line_of(workload: &LearnedWorkload) -> LearnedLine {
    LearnedLine {
        namespace: workload.namespace.to_string(),
        account: workload.account.to_string(),
        name: workload.name.to_string(),
    }
}

fn workload_of(line: &LearnedLine) -> LearnedWorkload {
    LearnedWorkload {
        namespace: Namespace::new(&line.namespace),
        account: ServiceAccount::new(&line.account),
        name: Arc::from(line.name.as_str()),
    }
}

fn texts_of(hosts: &LearnedHosts) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

fn hosts_of(texts: Vec<String>) -> LearnedHosts {
    texts.into_iter().map(Hostname::new).collect()
}

/// Reads an object.
fn object_of(value: &serde_json::Value) -> Result<AnyObject, InputError> {
    let (subject, outcome) = decode_value(value);
    match outcome {
        Outcome::Read { object, .. } => Ok(object),
        Outcome::Ignored => Err(InputError::Kind(subject.to_string())),
        Outcome::Rejected(error) => Err(InputError::Object {
            object: subject.to_string(),
            reason: error.to_string(),
        }),
    }
}

fn name_of(name: &ObjectRef) -> ObjectName {
    ObjectName {
        group: name.kind.group().to_owned(),
        kind: name.kind.as_str().to_owned(),
        namespace: name.name.namespace.as_str().to_owned(),
        name: name.name.name.to_string(),
    }
}

fn ref_of(name: &ObjectName) -> Result<ObjectRef, InputError> {
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == name.kind && kind.group() == name.group);
    let kind = kind.ok_or_else(|| {
        InputError::Kind(format!("{} {}/{}", name.kind, name.namespace, name.name))
    })?;
    Ok(ObjectRef {
        kind,
        name: NamespacedName::new(&name.namespace, &name.name),
    })
}

fn account_of(account: &NamespacedName) -> Account {
    Account {
        namespace: account.namespace.as_str().to_owned(),
        name: account.name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_survive_encoding_and_decoding() {
        let name = ObjectRef {
            kind: Kind::KubernetesGateway,
            name: NamespacedName::new("shop", "web"),
        };
        let account = NamespacedName::new("shop", "web");
        let cluster = ClusterId::new("east");
        let remote = |change| Change::Remote(cluster.clone(), change);
        let command = |command| Change::Rollout(name.clone(), Arc::new(command));
        let learned = |change: fn(LearnedHosts) -> LearnedChange| {
            let workload = LearnedWorkload {
                namespace: Namespace::new("shop"),
                account: ServiceAccount::new("default"),
                name: Arc::from("web"),
            };
            let hosts = LearnedHosts::from([Hostname::new("reviews.example")]);
            Change::Learned(workload, change(hosts))
        };

        let changes = [
            Change::Removed(name.clone()),
            Change::Mesh(Arc::new(MeshConfig::istio_defaults())),
            Change::Networks(Arc::default()),
            Change::SecretReader(account.clone(), Some(true)),
            Change::SecretReader(account.clone(), None),
            Change::Keys(KeySource::Issuer("i".into()), Some("{}".into())),
            Change::Keys(KeySource::Uri("u".into()), None),
            Change::TrustBundle(vec![Arc::from("root")].into()),
            Change::Quarantine(name.clone(), "no".into()),
            Change::RestoreQuarantine(
                name.clone(),
                Arc::new(RestoredQuarantine {
                    generation: 3,
                    uid: Uid::new("u"),
                    before: None,
                    message: "no".into(),
                }),
            ),
            Change::ReleaseQuarantine(name.clone()),
            Change::GatewayHost(
                "host".into(),
                Some(vec![IpAddr::from([10, 0, 0, 1])].into()),
            ),
            Change::Stages,
            Change::FindPeers,
            learned(LearnedChange::Add),
            learned(LearnedChange::Forget),
            command(RolloutCommand::Stage {
                serial: None,
                at: 1,
                chosen: Arc::new([Arc::from("p.shop")].into()),
            }),
            command(RolloutCommand::Stop {
                serial: None,
                reason: "no".into(),
            }),
            command(RolloutCommand::Complete { serial: None }),
            remote(RemoteChange::Removed(name.clone())),
            remote(RemoteChange::Reset(Vec::new())),
            remote(RemoteChange::Gone),
            remote(RemoteChange::SecretReader(account, Some(false))),
        ];

        let redactor = Redactor::new();
        let restorer = Restorer::new().unwrap();

        for change in changes {
            let text = serde_json::to_string(&written(&change, &redactor).unwrap()).unwrap();
            let back = read(serde_json::from_str(&text).unwrap(), &restorer).unwrap();
            assert_eq!(format!("{back:?}"), format!("{change:?}"), "{text}");
        }
    }
}
