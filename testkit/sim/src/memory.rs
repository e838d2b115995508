//! Whether memory is back to its start once objects, proxies, roots and clusters that came have
//! gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use navarch_api::rollout::ROLLOUT;
use navarch_security::ca::keeper::RotationCommand;
use tokio::time::sleep;

use crate::checks::Rest;
use crate::live_bytes::{live_bytes, record, recorded};
use crate::proxy::{Check, Command, Protocol, Proxy, Spec};
use crate::random::Random;
use crate::remote::{self, Remote};
use crate::replica::{Replica, SYSTEM_NAMESPACE};
use crate::signers;
use crate::tell;
use crate::world::{self, Edit, ObjectKey, Slot};

/// How often they come and go. In the first rounds tables grow, and rings fill that keep the last
/// of something.
const ROUNDS: usize = 5;
/// The round whose allocations are recorded: those of them that are not freed at the end are shown.
const RECORDED_ROUND: usize = ROUNDS - 2;
/// How many paths through the code are shown, of those that allocated most of what is left.
const SHOWN_PATHS: usize = 12;
/// How many objects of each kind come in a round, and the first of their numbers, which no user of
/// the schedule gives: their names are others in each round.
const NUMBERS: u64 = 3;
const FIRST_NUMBER: u64 = 6;
/// How many proxies come in a round.
const GUESTS: u8 = 2;
/// How long they are there, and how long they have gone before the memory is measured: what the
/// product keeps about objects that are gone it keeps for a minute, and rollouts take one.
const STAY: Duration = Duration::from_secs(150);
/// What may be left of a round: buffers and tables have different sizes at different times.
const MAX_LEFT: usize = 64 << 10;

/// Rounds in which they come and go.
pub(crate) struct Cycles<'a> {
    pub(crate) seed: u64,
    pub(crate) rest: Rest<'a>,
    pub(crate) remote: &'a Remote,
}

/// What there is after a round.
#[derive(Debug)]
struct Measured {
    live: usize,
    /// The entries of tables, by name.
    tables: BTreeMap<String, usize>,
}

impl Cycles<'_> {
    pub(crate) async fn check(&self) {
        let mut measured = Vec::new();
        for round in 0..ROUNDS {
            let recording = (round == RECORDED_ROUND).then(record);
            self.round(round).await;
            drop(recording);
            let live = live_bytes();
            let tables = self.tables().await;
            measured.push(Measured { live, tables });
        }

        self.show(&measured);
        tell!(
            self.rest.story,
            "simulation",
            "objects, proxies, roots and clusters came and went"
        );
        self.judge(&measured);
    }

    /// Everything comes, and goes again.
    async fn round(&self, round: usize) {
        let number = u64::try_from(round).unwrap_or_default();
        self.come(number);
        let guests: Vec<Proxy> = (0..GUESTS).map(|index| self.guest(number, index)).collect();
        self.rotate().await;
        sleep(STAY).await;

        self.go(number);
        for guest in guests {
            let Spec {
                namespace, name, ..
            } = &*guest.spec;
            self.rest.server.delete("", "Pod", namespace, name);
        }
        self.rest.server.collect_garbage();
        signers::settle(self.rest.story, self.rest.replicas).await;

        // Unused results are freed when a stream ends.
        for proxy in self.rest.proxies {
            proxy.command(Command::Reconnect);
        }
        sleep(STAY).await;
        self.rest.server.free_history();
        self.remote.server.free_history();
    }

    fn objects(round: u64) -> impl Iterator<Item = ObjectKey> {
        let first = FIRST_NUMBER + round * NUMBERS;
        Slot::ALL.into_iter().flat_map(move |slot| {
            (first..first + NUMBERS).map(move |number| ObjectKey { slot, number })
        })
    }

    /// Objects come, and a remote cluster with some.
    fn come(&self, round: u64) {
        let mut random = Random::new(self.seed + round, "memory");
        for object in Self::objects(round) {
            // Rollouts of one namespace wait for each other.
            let content =
                object.content_with(&mut random, |object| !object.to_string().contains(ROLLOUT));
            let put = Edit::Put { object, content };
            put.send(self.rest.server);
            if matches!(object.slot, Slot::Service | Slot::Endpoints | Slot::Pod) {
                put.send(&self.remote.server);
            }
        }
        self.rest.server.apply(&remote::secret());
    }

    fn go(&self, round: u64) {
        self.rest
            .server
            .delete("", "Secret", SYSTEM_NAMESPACE, remote::SECRET);
        for object in Self::objects(round) {
            Edit::Delete(object).send(self.rest.server);
            Edit::Delete(object).send(&self.remote.server);
        }
    }

    /// A proxy that comes, with its pod.
    fn guest(&self, round: u64, index: u8) -> Proxy {
        let name = format!("guest-{round}-{index}");
        let last = u8::try_from(round).unwrap_or_default() * GUESTS + index + 1;
        let spec = Spec {
            namespace: "shop".to_owned(),
            kind: "sidecar".to_owned(),
            address: [10, 1, 2, last].into(),
            labels: vec![("app".to_owned(), name.clone())],
            protocol: match index {
                0 => Protocol::Delta,
                _ => Protocol::State,
            },
            account: Some(name.clone()),
            secrets: Vec::new(),
            rejects: false,
            has_agent: index == 0,
            name,
        };
        self.rest.server.apply(&world::pod(&spec));
        let check: Check = Arc::new(|_, _| {});
        Proxy::start(spec, self.rest.replicas, self.seed, self.rest.story, check)
    }

    /// The CA of a replica.
    fn signing(&self) -> Option<Arc<Replica>> {
        let replicas = self.rest.replicas.lock();
        let mut replicas = replicas.iter();
        replicas
            .find(|replica| replica.signing().is_some())
            .cloned()
    }

    /// The root is rotated.
    async fn rotate(&self) {
        let replica = self.signing();
        let Some(signing) = replica.as_ref().and_then(|replica| replica.signing()) else {
            return;
        };
        if let Err(error) = signing.rotation.send(RotationCommand::Begin).await {
            self.rest
                .story
                .violated("a root is rotated at rest", &error.to_string());
        }
    }

    async fn tables(&self) -> BTreeMap<String, usize> {
        let mut tables = BTreeMap::new();
        for (name, sizes) in self.rest.sizes().await {
            tables.extend([
                (format!("results of {name}"), sizes.results),
                (format!("facts of {name}"), sizes.facts),
                (format!("attributes of {name}"), sizes.attributes),
                (
                    format!("attribute values of {name}"),
                    sizes.attribute_values,
                ),
                (format!("subscribers of {name}"), sizes.subscribers),
            ]);
        }
        tables.insert("objects".to_owned(), self.rest.server.all().len());
        let watches = self.rest.server.watches().values().sum();
        tables.insert("watches".to_owned(), watches);
        tables
    }

    /// Shows what there is. It is no part of the story: threads of the runtime allocate, too.
    fn show(&self, measured: &[Measured]) {
        for (round, Measured { live, tables }) in measured.iter().enumerate() {
            eprintln!("after round {}: {live} live bytes, {tables:?}", round + 1);
        }
        let left = recorded();
        let bytes: usize = left.iter().map(|path| path.bytes).sum();
        eprintln!("left of round {}: {bytes} bytes", RECORDED_ROUND + 1);
        for path in left.iter().take(SHOWN_PATHS) {
            eprintln!("    {path}");
        }
    }

    fn judge(&self, measured: &[Measured]) {
        let violated = |text: &str| {
            self.rest
                .story
                .violated("memory is back to its start", text);
        };
        let live: Vec<usize> = measured.iter().map(|measured| measured.live).collect();
        let [first @ .., _, last] = measured else {
            return;
        };
        let Some(third) = first.last() else { return };
        let is_counted = live.iter().all(|bytes| *bytes > 0);
        if !is_counted || last.live > third.live + MAX_LEFT {
            violated(&format!("live bytes after each round: {live:?}"));
        }
        for (table, is) in &last.tables {
            let before = first
                .iter()
                .filter_map(|measured| measured.tables.get(table));
            let most = before.max().copied().unwrap_or_default();
            if *is > most {
                violated(&format!("{is} {table}, {most} in the first rounds"));
            }
        }
    }
}
