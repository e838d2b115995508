//! A set of roots as named files: the entries of a Secret, or the files of a folder.
//!
//! The signing CA has istiod's file names, so that istiod's tools and older versions of the control
//! plane can read it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::bundle::{Bundle, BundleError};
use super::{FormerRoots, Next, Origin, RootSet};
use navarch_api::kubernetes::SecretBytes;
use navarch_base::state_format::{self, FormatError};

/// The format of the rest of the state.
const FORMAT: u32 = 1;
/// The signing certificate.
const CERTIFICATE: &str = "ca-cert.pem";
const KEY: &str = "ca-key.pem";
/// The chain from the signing certificate to its root.
const CHAIN: &str = "cert-chain.pem";
/// All trusted roots; empty if the only one is the signing certificate itself.
const ROOTS: &str = "root-cert.pem";
/// The next signing certificate.
const NEXT_CERTIFICATE: &str = "next-ca-cert.pem";
const NEXT_KEY: &str = "next-ca-key.pem";
/// The rest of the state.
const ROTATION_STATE: &str = "rotation.json";
/// An empty entry that older readers expect.
const UNUSED: &str = "key.pem";

/// Files by name.
pub type StoredFiles = BTreeMap<String, SecretBytes>;

/// Errors of loading and storing a set.
#[derive(Debug, thiserror::Error)]
pub enum StoredFilesError {
    /// A file is missing.
    #[error("{0} is missing: restore it or remove all of them")]
    Incomplete(&'static str),
    /// A file is invalid.
    #[error("failed to parse {0}")]
    Unreadable(&'static str),
    /// A file has another format.
    #[error("{0}")]
    Format(&'static str, #[source] FormatError),
    /// A root is invalid.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// The state that has no file of its own.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RotationState {
    /// [`FORMAT`], checked beforehand.
    format: u32,
    /// The signing CA.
    signer: CaData,
    next: Option<NextCaData>,
    /// The former roots.
    former: Vec<FormerData>,
}

/// The data of a CA besides its certificate and key.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CaData {
    /// The origin; self-signed if it is missing.
    origin: Option<Origin>,
    /// The roots; if empty, the certificate itself.
    roots: String,
    /// The chain from the certificate to its root.
    chain: String,
    /// CRLs.
    revocations: String,
}

/// The next CA, and the time since which it is trusted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NextCaData {
    #[serde(flatten)]
    side: CaData,
    /// The time since which the CA is trusted.
    since: Timestamp,
}

/// Roots that no longer sign.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FormerData {
    roots: String,
    /// The time until which the roots are trusted.
    until: Timestamp,
}

impl CaData {
    fn of(bundle: &Bundle, origin: Origin) -> Self {
        let Bundle {
            certificate,
            key: _,
            chain,
            roots,
            revocations,
        } = bundle;

        let roots = if roots == certificate {
            String::new()
        } else {
            roots.clone()
        };

        Self {
            origin: Some(origin),
            roots,
            chain: chain.clone(),
            revocations: revocations.clone(),
        }
    }

    fn bundle(self, certificate: String, key: SecretBytes) -> Bundle {
        let roots = if self.roots.is_empty() {
            certificate.clone()
        } else {
            self.roots
        };
        Bundle {
            certificate,
            key,
            chain: self.chain,
            roots,
            revocations: self.revocations,
        }
    }
}

impl RootSet {
    /// Converts the set to files.
    ///
    /// # Errors
    /// If a root is invalid.
    pub fn to_files(&self) -> Result<StoredFiles, StoredFilesError> {
        let text = |text: &str| SecretBytes::new(text.to_owned());
        let roots = self.roots()?;
        let roots = if roots == self.signer.certificate {
            ""
        } else {
            &roots
        };

        let mut files = StoredFiles::from([
            (CERTIFICATE.to_owned(), text(&self.signer.certificate)),
            (KEY.to_owned(), self.signer.key.clone()),
            (CHAIN.to_owned(), text(&self.signer.chain)),
            (ROOTS.to_owned(), text(roots)),
            (UNUSED.to_owned(), text("")),
        ]);

        let signer = CaData::of(&self.signer, self.origin);
        let is_plain = self.next.is_none() && self.former.is_empty() && signer.roots.is_empty();
        if is_plain && self.origin == Origin::SelfSigned {
            return Ok(files);
        }

        let mut rest = RotationState {
            format: FORMAT,
            signer,
            ..RotationState::default()
        };

        if let Some(Next {
            bundle,
            origin,
            since,
        }) = &self.next
        {
            files.insert(NEXT_CERTIFICATE.to_owned(), text(&bundle.certificate));
            files.insert(NEXT_KEY.to_owned(), bundle.key.clone());
            rest.next = Some(NextCaData {
                side: CaData::of(bundle, *origin),
                since: moment(*since),
            });
        }

        let former = self.former.iter();
        rest.former = former
            .map(|one| FormerData {
                roots: one.roots.clone(),
                until: moment(one.until),
            })
            .collect();

        let rest =
            serde_json::to_vec(&rest).map_err(|_| StoredFilesError::Unreadable(ROTATION_STATE))?;
        files.insert(ROTATION_STATE.to_owned(), SecretBytes::new(rest));
        Ok(files)
    }

    /// Converts files to a set; `None` if both certificate and key are missing.
    ///
    /// # Errors
    /// If a file is missing or invalid.
    pub fn from_files(files: &StoredFiles) -> Result<Option<Self>, StoredFilesError> {
        let bytes = |name: &str| {
            files
                .get(name)
                .filter(|bytes| !bytes.expose().is_empty())
                .cloned()
        };

        let text = |name: &'static str| {
            let text = bytes(name).map(|bytes| String::from_utf8(bytes.expose().to_vec()));
            text.transpose()
                .map_err(|_| StoredFilesError::Unreadable(name))
        };

        let (certificate, key) = match (text(CERTIFICATE)?, bytes(KEY)) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate, key),
            (None, Some(_)) => return Err(StoredFilesError::Incomplete(CERTIFICATE)),
            (Some(_), None) => return Err(StoredFilesError::Incomplete(KEY)),
        };

        let rest = bytes(ROTATION_STATE);
        if let Some(rest) = &rest {
            state_format::check_json(rest.expose(), FORMAT)
                .map_err(|error| StoredFilesError::Format(ROTATION_STATE, error))?;
        }

        let rest = rest.map(|rest| serde_json::from_slice::<RotationState>(rest.expose()));
        let Some(rest) = rest
            .transpose()
            .map_err(|_| StoredFilesError::Unreadable(ROTATION_STATE))?
        else {
            // As istiod writes it: the file of roots may contain only additional roots.
            let further = text(ROOTS)?.unwrap_or_default();
            let roots = if further.contains(certificate.trim()) {
                further
            } else {
                certificate.clone() + &further
            };
            let signer = CaData {
                roots,
                ..CaData::default()
            }
            .bundle(certificate, key);
            return Ok(Some(Self::single(signer, Origin::SelfSigned)));
        };

        let RotationState {
            format: _,
            signer,
            next,
            former,
        } = rest;
        let origin = |side: &CaData| side.origin.unwrap_or(Origin::SelfSigned);
        let next = match next {
            None => None,
            Some(NextCaData { side, since }) => {
                let certificate = text(NEXT_CERTIFICATE)?
                    .ok_or(StoredFilesError::Incomplete(NEXT_CERTIFICATE))?;
                let key = bytes(NEXT_KEY).ok_or(StoredFilesError::Incomplete(NEXT_KEY))?;
                let origin = origin(&side);
                Some(Next {
                    bundle: side.bundle(certificate, key),
                    origin,
                    since: since.into(),
                })
            }
        };

        let former = former
            .into_iter()
            .map(|one| FormerRoots {
                roots: one.roots,
                until: one.until.into(),
            })
            .collect();

        Ok(Some(Self {
            origin: origin(&signer),
            signer: signer.bundle(certificate, key),
            next,
            former,
        }))
    }
}

/// Converts a time.
fn moment(time: std::time::SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX)
}
