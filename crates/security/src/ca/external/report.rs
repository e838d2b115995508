//! The state of a signer, for operators.

use std::time::SystemTime;

use jiff::Timestamp;
use serde::Serialize;

use super::super::rotation::Missing;
use super::super::signer::{IssuedChain, SignerError};
use super::SignerRoot;
use crate::certificate_life::CertificateLife;
use navarch_api::names::Namespace;
use navarch_base::error_chain::chain;

/// A signer as operators see it. Sent to them as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerReport {
    /// Who signs: `kubernetes`, `socket`, `spire` or `cert-manager`.
    pub name: &'static str,
    /// The namespaces it signs for; empty for all that no other signer has.
    pub namespaces: Vec<String>,
    /// Why requests are not passed to it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away: Option<String>,
    /// The namespaces whose requests are not passed to it now, because it was unavailable for them.
    pub unavailable: Vec<UnavailableNamespace>,
    /// When it last signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Timestamp>,
    /// The last failure of the signer, cut and escaped. Rejected requests are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
    /// The issuers of the last certificate, without roots.
    pub chain: Vec<ChainLink>,
    /// Its roots; empty if they are configured elsewhere.
    pub roots: Vec<SignerRoot>,
    /// Proxies that lack a new root.
    pub missing: Vec<Missing>,
}

/// A namespace that a signer was unavailable for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnavailableNamespace {
    /// The namespace of the certificates.
    pub namespace: String,
    /// The signer's reason, cut and escaped.
    pub why: String,
}

/// A certificate of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChainLink {
    /// The X.509 subject.
    pub subject: String,
    /// The start of its validity.
    pub not_before: Timestamp,
    /// The end of its validity.
    pub not_after: Timestamp,
}

/// The last success and the last failure.
#[derive(Debug, Default)]
pub(super) struct LastEvents {
    success: Option<Timestamp>,
    error: Option<(Timestamp, String)>,
    chain: Vec<ChainLink>,
}

impl LastEvents {
    /// Records the outcome of a request.
    pub(super) fn note(&mut self, outcome: &Result<IssuedChain, SignerError>, now: SystemTime) {
        let now = Timestamp::try_from(now).unwrap_or(Timestamp::MAX);
        match outcome {
            Ok(issued) => {
                self.success = Some(now);
                let issuers = issued.chain.iter().skip(1);
                self.chain = issuers
                    .filter_map(CertificateLife::of)
                    .map(|life| ChainLink {
                        subject: life.subject,
                        not_before: life.not_before,
                        not_after: life.not_after,
                    })
                    .collect();
            }
            // They say nothing about the signer, and clients could hide its errors with them.
            Err(
                SignerError::Beyond(_)
                | SignerError::Request(_)
                | SignerError::Rate(_)
                | SignerError::QueueFull,
            ) => {}
            Err(error) => self.error = Some((now, chain(error))),
        }
    }

    /// The report of a signer with these events, and nothing else.
    pub(super) fn report(&self, name: &'static str) -> SignerReport {
        SignerReport {
            name,
            namespaces: Vec::new(),
            away: None,
            unavailable: Vec::new(),
            last_success: self.success,
            last_error: self.error.as_ref().map(|(_, error)| error.clone()),
            last_error_at: self.error.as_ref().map(|(at, _)| *at),
            chain: self.chain.clone(),
            roots: Vec::new(),
            missing: Vec::new(),
        }
    }
}

impl UnavailableNamespace {
    pub(super) fn new(namespace: &Namespace, why: &str) -> Self {
        Self {
            namespace: namespace.as_str().to_owned(),
            why: why.to_owned(),
        }
    }
}
