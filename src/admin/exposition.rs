//! The text of all metrics, encoded once for concurrent readers.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// The pause before the next encoding, as a multiple of the last duration, so that any number of
/// readers costs half of one thread.
const PAUSE_FACTOR: u32 = 1;
/// Maximum wait for the next text.
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// All metrics and their text.
#[derive(Debug)]
pub struct Exposition {
    /// The registry that is encoded for each scrape.
    registry: Registry,
    /// The last text; readers of a new one wait for it.
    latest: Mutex<Option<LatestText>>,
}

/// A text, while it is being read.
#[derive(Debug)]
struct LatestText {
    /// When it was begun.
    begun: Instant,
    /// When the next one may begin.
    next: Instant,
    text: Weak<String>,
}

/// A text that is shared by all readers.
struct Shared(Arc<String>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Exposition {
    /// The metrics of a registry.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self {
            registry,
            latest: Mutex::default(),
        }
    }

    /// The current text. One text is encoded at a time, with a pause before the next in proportion
    /// to its cost; all requests until then share the next one.
    ///
    /// # Errors
    /// If a metric cannot be encoded.
    pub async fn text(&self) -> Result<Bytes, fmt::Error> {
        let requested_at = Instant::now();
        let mut latest = self.latest.lock().await;

        // As it was begun later, it includes everything that was counted before the request.
        let shared = latest
            .as_ref()
            .filter(|latest| latest.begun > requested_at)
            .and_then(|latest| latest.text.upgrade());
        let text = match shared {
            Some(text) => text,
            None => {
                if let Some(latest) = &*latest {
                    sleep_until(latest.next).await;
                }

                let begun = Instant::now();
                let mut text = String::new();
                encode(&mut text, &self.registry)?;
                let text = Arc::new(text);
                let ended = Instant::now();
                let next = ended + ((ended - begun) * PAUSE_FACTOR).min(MAX_PAUSE);
                *latest = Some(LatestText {
                    begun,
                    next,
                    text: Arc::downgrade(&text),
                });

                text
            }
        };

        Ok(Bytes::from_owner(Shared(text)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;

    use super::*;

    /// Counts how often it is encoded, and takes a while each time.
    #[derive(Clone, Debug, Default)]
    struct Counted(Arc<AtomicUsize>);

    impl Collector for Counted {
        fn encode(&self, _: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(20));
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_readers_share_a_text_and_later_ones_get_a_new_one() {
        let counted = Counted::default();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(counted.clone()));
        let exposition = Arc::new(Exposition::new(registry));
        let mut readers = tokio::task::JoinSet::new();

        for _ in 0..200 {
            let exposition = exposition.clone();
            readers.spawn(async move { exposition.text().await.unwrap() });
        }

        let texts = readers.join_all().await;
        let made = counted.0.load(Ordering::Relaxed);
        assert!(
            (1..=100).contains(&made),
            "{made} texts were made for 200 readers"
        );
        assert!(texts.iter().all(|text| text == "# EOF\n"));
        exposition.text().await.unwrap();

        assert_eq!(
            counted.0.load(Ordering::Relaxed),
            made + 1,
            "nobody gets a text from before it asked"
        );
        let begun = Instant::now();
        exposition.text().await.unwrap();
        assert!(
            begun.elapsed() >= Duration::from_millis(30),
            "texts are made one right after the other"
        );
    }
}
