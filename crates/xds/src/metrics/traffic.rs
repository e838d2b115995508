//! Bytes of responses: what was sent, and what is kept to be sent again, by encoding.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::compression::Encoding;
use crate::session::encoding_cache::EncodingCache;
use navarch_base::counter::Count;

/// The label value of messages that are not compressed, as in `grpc-encoding`.
const IDENTITY: &str = "identity";

/// Handles of the metrics. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    /// `navarch_xds_sent_bytes`.
    sent: Family<EncodingLabel, Count>,
    /// Handles of it, looked up once.
    identity: Count,
    gzip: Count,
    zstd: Count,
    /// The cache that is measured, once set.
    cache: Arc<OnceLock<Arc<EncodingCache>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EncodingLabel {
    encoding: &'static str,
}

/// Measures the encoded responses that are kept, at each scrape.
#[derive(Debug)]
struct EncodedBytes(Arc<OnceLock<Arc<EncodingCache>>>);

impl EncodingLabel {
    fn of(encoding: Option<Encoding>) -> Self {
        Self {
            encoding: encoding.map_or(IDENTITY, Encoding::name),
        }
    }
}

impl Collector for EncodedBytes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let held = self.0.get().map(|cache| cache.held()).unwrap_or_default();
        let rows = [
            (None, held.plain),
            (Some(Encoding::Gzip), held.gzip),
            (Some(Encoding::Zstd), held.zstd),
        ];

        let help = "Bytes of encoded responses that are kept for further streams, by encoding";
        let mut descriptor = encoder.encode_descriptor(
            "navarch_xds_encoded_bytes",
            help,
            None,
            MetricType::Gauge,
        )?;
        for (encoding, bytes) in rows {
            let gauge = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
            gauge.encode(descriptor.encode_family(&EncodingLabel::of(encoding))?)?;
        }
        Ok(())
    }
}

impl Traffic {
    pub(super) fn unregistered() -> Self {
        let sent = Family::<EncodingLabel, Count>::default();
        let count = |encoding| sent.get_or_create(&EncodingLabel::of(encoding)).clone();
        let identity = count(None);
        let gzip = count(Some(Encoding::Gzip));
        let zstd = count(Some(Encoding::Zstd));
        Self {
            sent,
            identity,
            gzip,
            zstd,
            cache: Arc::default(),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "navarch_xds_sent_bytes",
            "Bytes of responses on the wire, without HTTP/2 and TLS, by encoding",
            self.sent.clone(),
        );
        registry.register_collector(Box::new(EncodedBytes(self.cache.clone())));
    }

    /// Sets the cache that is measured. Only the first call has an effect.
    pub(super) fn measure(&self, cache: Arc<EncodingCache>) {
        let _ = self.cache.set(cache);
    }

    /// Counts a response.
    pub(super) fn sent(&self, encoding: Option<Encoding>, bytes: usize) {
        let count = match encoding {
            None => &self.identity,
            Some(Encoding::Gzip) => &self.gzip,
            Some(Encoding::Zstd) => &self.zstd,
        };
        count.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}
