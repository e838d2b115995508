//! Whether memory is back to its start once objects that came have gone.

use std::time::Duration;

use navarch_api::rollout::ROLLOUT;
use tokio::time::sleep;

use crate::api_server::ApiServer;
use crate::live_bytes::live_bytes;
use crate::proxy::{Command, Proxy};
use crate::random::Random;
use crate::story::Story;
use crate::tell;
use crate::world::{Edit, ObjectKey, Slot};

/// How often the objects come and go. In the first rounds tables grow, and texts are made that are
/// kept.
const ROUNDS: usize = 5;
/// How many objects of each kind: numbers that no user of the schedule gives.
const NUMBERS: std::ops::Range<u64> = 6..9;
/// How long they are there, and how long they have gone before the memory is measured: what the
/// product keeps about objects that are gone it keeps for a minute, and rollouts take one.
const STAY: Duration = Duration::from_secs(150);
/// What may be left of a round: buffers and tables have different sizes at different times.
const MAX_LEFT: usize = 64 << 10;

/// Rounds in which the same objects come and go.
pub(crate) struct Cycles<'a> {
    pub(crate) story: &'a Story,
    pub(crate) server: &'a ApiServer,
    pub(crate) proxies: &'a [Proxy],
}

impl Cycles<'_> {
    pub(crate) async fn check(&self, seed: u64) {
        let mut live = Vec::new();
        for _ in 0..ROUNDS {
            self.come(seed);
            sleep(STAY).await;
            self.go();
            sleep(STAY).await;
            // Unused results are freed when a stream ends.
            for proxy in self.proxies {
                proxy.command(Command::Reconnect);
            }
            sleep(STAY).await;
            self.server.free_history();
            live.push(live_bytes());
        }

        // They are no part of the story: threads of the runtime allocate, too.
        eprintln!("live bytes after each round: {live:?}");
        tell!(self.story, "simulation", "objects came and went");
        let is_counted = live.iter().all(|bytes| *bytes > 0);
        let is_back = matches!(live.as_slice(), [.., first, _, last] if *last <= first + MAX_LEFT);
        if !is_counted || !is_back {
            let text = format!("live bytes after each round: {live:?}");
            self.story.violated("memory is back to its start", &text);
        }
    }

    fn objects() -> impl Iterator<Item = ObjectKey> {
        Slot::ALL
            .into_iter()
            .flat_map(|slot| NUMBERS.map(move |number| ObjectKey { slot, number }))
    }

    fn come(&self, seed: u64) {
        let mut random = Random::new(seed, "memory");
        for object in Self::objects() {
            // A version that was rolled out before would not be again.
            let content =
                object.content_with(&mut random, |object| !object.to_string().contains(ROLLOUT));
            Edit::Put { object, content }.send(self.server);
        }
    }

    fn go(&self) {
        for object in Self::objects() {
            Edit::Delete(object).send(self.server);
        }
    }
}
