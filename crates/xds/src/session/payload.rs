//! Encoded resources that many streams share, and their compressed forms.
//!
//! The length of compressed text reveals something about each part of it to whoever can choose
//! another part (CRIME and BREACH do that to HTTPS). Secrets and extension configs have credentials
//! by their purpose, and are never compressed. Listeners, clusters and routes can have one that a
//! user wrote into an EnvoyFilter, into headers of a VirtualService or of a tracing provider,
//! beside names and hosts of other authors. They are compressed nevertheless, which
//! `docs/security.md` tells operators:
//!
//! - A client cannot choose text: what it says of itself changes its own resources alone, and only
//!   streams with equal resources share a payload. It takes the right to write objects that reach
//!   the same proxies.
//! - Each guess is an edit that is pushed to all of these proxies, and finding one byte takes many:
//!   the history of pushes has each of them.
//! - The length must be seen exactly, on the network between or in metrics of a mesh without other
//!   changes.
//! - What it gains is known to every proxy that has the resource, and to whoever may read the
//!   object; a credential that only one workload may have belongs into a Secret.

use std::fmt;
use std::iter::Sum;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::{OnceCell, Semaphore, TryAcquireError};
use tokio::task::spawn_blocking;

use crate::compression::{CompressedPayload, Encoding};
use navarch_push::resource::ResourceType;

/// Bytes below which a payload is not compressed: it fits one TCP segment with its headers.
const MIN_BYTES: usize = 1 << 10;
/// Bytes from which a payload is compressed on another thread: it takes 0.3 ms and more.
const BLOCKING_BYTES: usize = 64 << 10;

/// Encoded resources, shared. They may contain keys, so `Debug` shows only the size.
#[derive(Clone, Default)]
pub(crate) struct Payload {
    plain: Bytes,
    /// `None` if it is never compressed.
    forms: Option<Arc<Forms>>,
}

/// The compressed forms of a payload, each made at first use. `None` in a cell: compression does not
/// pay.
#[derive(Debug, Default)]
struct Forms {
    /// Whether a stream has sent the payload.
    is_sent: AtomicBool,
    gzip: OnceCell<Option<CompressedPayload>>,
    zstd: OnceCell<Option<CompressedPayload>>,
}

/// Bytes that payloads hold, by form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldBytes {
    pub(crate) plain: usize,
    pub(crate) gzip: usize,
    pub(crate) zstd: usize,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.plain.len())
    }
}

impl Payload {
    /// Resources of one type; no type if there are none.
    pub(crate) fn new(resource_type: Option<ResourceType>, plain: Bytes) -> Self {
        let is_compressed = plain.len() >= MIN_BYTES
            && resource_type.is_some_and(|resource_type| !is_secret(resource_type));
        let forms = is_compressed.then(Arc::default);
        Self { plain, forms }
    }

    /// The resources, not compressed.
    pub(crate) fn plain(&self) -> &Bytes {
        &self.plain
    }

    /// The resources, not compressed.
    pub(crate) fn into_plain(self) -> Bytes {
        self.plain
    }

    /// The compressed form for a stream that sends this payload and accepts this encoding; `None`
    /// if it is to be sent as it is, as for the first stream: for one stream, compression costs more
    /// CPU time than it saves. So a client alone cannot cause any.
    ///
    /// It is made once: while one stream makes it, others wait. `compressors` has a permit for each
    /// processor. If none is free, the payload is sent as it is, so that nobody waits for work that
    /// others cause.
    pub(crate) async fn compressed(
        &self,
        encoding: Option<Encoding>,
        compressors: &Arc<Semaphore>,
    ) -> Option<CompressedPayload> {
        let forms = self.forms.as_ref()?;
        let is_first = !forms.is_sent.swap(true, Ordering::Relaxed);
        let encoding = encoding.filter(|_| !is_first)?;

        let form = forms.form(encoding);
        let made = form.get_or_try_init(|| compress(&self.plain, encoding, compressors));
        made.await.ok()?.clone()
    }

    /// Bytes that it holds.
    pub(crate) fn held(&self) -> HeldBytes {
        let of = |encoding| {
            let forms = self.forms.as_ref()?;
            let form = forms.form(encoding).get()?.as_ref()?;
            Some(form.len())
        };
        HeldBytes {
            plain: self.plain.len(),
            gzip: of(Encoding::Gzip).unwrap_or_default(),
            zstd: of(Encoding::Zstd).unwrap_or_default(),
        }
    }
}

impl Forms {
    fn form(&self, encoding: Encoding) -> &OnceCell<Option<CompressedPayload>> {
        match encoding {
            Encoding::Gzip => &self.gzip,
            Encoding::Zstd => &self.zstd,
        }
    }
}

impl Sum for HeldBytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            plain: sum.plain + one.plain,
            gzip: sum.gzip + one.gzip,
            zstd: sum.zstd + one.zstd,
        })
    }
}

/// Whether resources of a type contain secrets, as extension configs do that have the configuration
/// of a WasmPlugin or credentials of a registry. They are never compressed.
fn is_secret(resource_type: ResourceType) -> bool {
    matches!(
        resource_type,
        ResourceType::Secret | ResourceType::ExtensionConfig
    )
}

/// Compresses a payload; `None` if that saves less than a quarter, so that compressed forms never
/// hold more than three quarters of the plain ones each.
///
/// # Errors
/// If no compressor is free now.
async fn compress(
    plain: &Bytes,
    encoding: Encoding,
    compressors: &Arc<Semaphore>,
) -> Result<Option<CompressedPayload>, TryAcquireError> {
    let compressed = if plain.len() < BLOCKING_BYTES {
        encoding.compress(plain)
    } else {
        let permit = compressors.clone().try_acquire_owned()?;
        let plain = plain.clone();
        let made = spawn_blocking(move || {
            // The work goes on if the stream ends, and so does the permit.
            let _permit = permit;
            encoding.compress(&plain)
        });
        made.await
            .unwrap_or_else(|failed| Err(std::io::Error::other(failed)))
    };

    Ok(match compressed {
        Ok(compressed) => Some(compressed).filter(|made| made.len() <= plain.len() / 4 * 3),
        Err(error) => {
            let name = encoding.name();
            tracing::warn!(%error, encoding = name, "failed to compress a response; it is sent as it is");
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(resource_type: ResourceType, bytes: usize) -> Payload {
        Payload::new(Some(resource_type), vec![7; bytes].into())
    }

    async fn is_compressed(payload: &Payload) -> bool {
        let compressors = Arc::new(Semaphore::new(1));
        let form = payload.compressed(Some(Encoding::Zstd), &compressors).await;
        form.is_some()
    }

    #[tokio::test]
    async fn a_payload_is_compressed_for_the_second_stream_that_sends_it() {
        for bytes in [MIN_BYTES, BLOCKING_BYTES] {
            let alone = payload(ResourceType::Cluster, bytes);
            assert!(!is_compressed(&alone).await);
            assert!(is_compressed(&alone.clone()).await);
        }
    }

    #[tokio::test]
    async fn a_stream_without_an_encoding_counts_as_the_first() {
        let shared = payload(ResourceType::Cluster, MIN_BYTES);
        let compressors = Arc::new(Semaphore::new(1));
        assert!(shared.compressed(None, &compressors).await.is_none());
        assert!(is_compressed(&shared).await);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_busy_compressor() {
        let compressors = Arc::new(Semaphore::new(1));
        let busy = compressors.clone().try_acquire_owned().unwrap();
        let shared = payload(ResourceType::Cluster, BLOCKING_BYTES);
        for _ in 0..2 {
            let form = shared.compressed(Some(Encoding::Zstd), &compressors).await;
            assert!(form.is_none());
        }

        drop(busy);
        assert!(is_compressed(&shared).await);
    }

    #[tokio::test]
    async fn tiny_payloads_and_secrets_are_never_compressed() {
        let tiny = payload(ResourceType::Cluster, MIN_BYTES - 1);
        let secret = payload(ResourceType::Secret, BLOCKING_BYTES);
        for _ in 0..3 {
            assert!(!is_compressed(&tiny).await);
            assert!(!is_compressed(&secret).await);
        }
    }

    #[tokio::test]
    async fn bytes_that_do_not_shrink_are_sent_as_they_are() {
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        });
        let noise: Vec<u8> = noise.take(BLOCKING_BYTES).collect();
        let noise = Payload::new(Some(ResourceType::Cluster), noise.into());
        for _ in 0..2 {
            assert!(!is_compressed(&noise).await);
        }
        assert_eq!(noise.held().zstd, 0);
    }

    #[tokio::test]
    async fn streams_share_one_compressed_form() {
        let shared = payload(ResourceType::Cluster, BLOCKING_BYTES);
        let compressors = Arc::new(Semaphore::new(1));
        let other = shared.clone();
        assert!(shared.compressed(None, &compressors).await.is_none());
        let (one, two) = tokio::join!(
            shared.compressed(Some(Encoding::Gzip), &compressors),
            other.compressed(Some(Encoding::Gzip), &compressors),
        );
        let length = shared.plain().len();
        let [one, two] = [one, two].map(|form| form.unwrap().message(b"", length).unwrap());
        assert_eq!(one.payload.as_ptr(), two.payload.as_ptr());

        let held = other.held();
        assert_eq!((held.plain, held.gzip), (length, one.payload.len()));
        assert_eq!(held.zstd, 0);
    }
}
