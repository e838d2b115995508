//! Metrics of the CA, under istiod's names (`security/pkg/server/ca/monitoring.go`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;

use super::Authority;
use crate::Clock;
use navarch_base::counter::Count;

/// The remaining time until an expiry, computed at every scrape.
#[derive(Clone, Debug)]
struct RemainingTime {
    /// The expiry, in seconds since 1970.
    ends: Arc<AtomicI64>,
    /// The wall clock.
    clock: Clock,
}

/// The reason why no certificate was signed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabel {
    /// The reason, as in istiod.
    error: &'static str,
}

/// A signer and what became of a request to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SignerLabels {
    /// Such as `spire`.
    signer: &'static str,
    /// `issued`, or why there is no certificate.
    result: &'static str,
}

/// Handles of all metrics of the CA. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// `citadel_server_csr_count`.
    requests: Count,
    /// `citadel_server_authentication_failure_count`.
    strangers: Count,
    /// `citadel_server_csr_parsing_err_count`.
    unreadable: Count,
    /// `citadel_server_id_extraction_err_count`.
    nameless: Count,
    /// `citadel_server_csr_sign_err_count`.
    unsigned: Family<ErrorLabel, Count>,
    /// `citadel_server_success_cert_issuance_count`.
    issued: Count,
    /// `navarch_signer_requests_total`.
    signers: Family<SignerLabels, Counter>,
    /// `citadel_server_root_cert_expiry_timestamp`.
    root_ends: Gauge,
    /// `citadel_server_cert_chain_expiry_timestamp`.
    chain_ends: Gauge,
    /// The same two expiries, exported as remaining time.
    ends: [Arc<AtomicI64>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// A certificate was issued.
    Issued,
    /// The caller has no right to the requested certificate.
    Stranger,
    /// The request is unreadable, or its content is rejected.
    Unreadable,
    /// Signing failed, with istiod's reason.
    Unsigned(&'static str),
}

impl TypedMetric for RemainingTime {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for RemainingTime {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let now = jiff::Timestamp::try_from((self.clock)()).map_or(0, jiff::Timestamp::as_second);
        encoder.encode_gauge(&(self.ends.load(Ordering::Relaxed) - now))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl Metrics {
    /// Registers `citadel_server_*`. `clock` is read at each scrape, for the seconds until expiry.
    pub fn register(registry: &mut Registry, clock: Clock) -> Self {
        let m = Self {
            requests: Count::default(),
            strangers: Count::default(),
            unreadable: Count::default(),
            nameless: Count::default(),
            unsigned: Family::default(),
            issued: Count::default(),
            signers: Family::default(),
            root_ends: Gauge::default(),
            chain_ends: Gauge::default(),
            ends: [Arc::default(), Arc::default()],
        };

        registry.register(
            "citadel_server_csr_count",
            "CSRs received",
            m.requests.clone(),
        );
        let name = "citadel_server_authentication_failure_count";
        registry.register(
            name,
            "Certificate requests of unauthenticated or unauthorized callers",
            m.strangers.clone(),
        );

        registry.register(
            "citadel_server_csr_parsing_err_count",
            "CSRs that failed to parse",
            m.unreadable.clone(),
        );
        let help = "Certificate requests of callers without an identity";
        registry.register(
            "citadel_server_id_extraction_err_count",
            help,
            m.nameless.clone(),
        );

        let help = "CSRs that failed to be signed, by reason";
        registry.register(
            "citadel_server_csr_sign_err_count",
            help,
            m.unsigned.clone(),
        );
        let name = "citadel_server_success_cert_issuance_count";
        registry.register(name, "Certificates issued", m.issued.clone());

        registry.register(
            "navarch_signer_requests",
            "Certificate requests to a signer outside of the control plane, by result",
            m.signers.clone(),
        );

        let name = "citadel_server_root_cert_expiry_timestamp";
        registry.register(
            name,
            "Expiry of the first root certificate, in seconds since 1970",
            m.root_ends.clone(),
        );
        let name = "citadel_server_cert_chain_expiry_timestamp";
        registry.register(
            name,
            "Expiry of the signing certificate, in seconds since 1970",
            m.chain_ends.clone(),
        );

        let [root, chain] = m.ends.clone();
        let help = "Seconds until the first root certificate expires";
        registry.register(
            "citadel_server_root_cert_expiry_seconds",
            help,
            RemainingTime { ends: root, clock },
        );
        let help = "Seconds until the signing certificate expires";

        registry.register(
            "citadel_server_cert_chain_expiry_seconds",
            help,
            RemainingTime { ends: chain, clock },
        );

        m
    }

    /// Increments `citadel_server_csr_count`, whatever the outcome will be.
    pub fn count_request(&self) {
        self.requests.inc();
    }

    /// Counts a caller that was not authenticated.
    pub fn count_unauthenticated(&self) {
        self.strangers.inc();
    }

    /// Counts the outcome of a request.
    pub(super) fn done(&self, fate: RequestOutcome) {
        match fate {
            RequestOutcome::Issued => self.issued.inc(),
            RequestOutcome::Stranger => self.strangers.inc(),
            RequestOutcome::Unreadable => self.unreadable.inc(),
            RequestOutcome::Unsigned(error) => {
                self.unsigned.get_or_create(&ErrorLabel { error }).inc()
            }
        };
    }

    /// Counts a request to a signer outside of the control plane.
    pub(super) fn count_signer(&self, signer: &'static str, result: &'static str) {
        self.signers
            .get_or_create(&SignerLabels { signer, result })
            .inc();
    }

    /// Sets the expiry metrics of the current authority.
    pub fn signs(&self, authority: &Authority) {
        let seconds = |time| jiff::Timestamp::try_from(time).map_or(0, jiff::Timestamp::as_second);
        let chain = seconds(authority.not_after());
        let root = authority.first_root_ends().map_or(chain, seconds);
        let [root_left, chain_left] = &self.ends;
        for (gauge, ends, value) in [
            (&self.root_ends, root_left, root),
            (&self.chain_ends, chain_left, chain),
        ] {
            gauge.set(value);
            ends.store(value, Ordering::Relaxed);
        }
    }
}
