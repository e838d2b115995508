//! Names of the secrets that the agent serves.

use std::path::PathBuf;

/// The meaning of a secret name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretName {
    /// `default`: the workload's certificate and key.
    Workload,
    /// `ROOTCA`: the workload's trusted roots.
    Roots,
    /// `file-root:system`: the roots of the system.
    SystemRoots,
    /// `file-root:<path>`: roots in a file.
    FileRoots(PathBuf),
    /// `file-cert:<chain>~<key>`: a certificate in files.
    FileCertificate {
        /// File of the certificates in PEM. Neither path is empty or contains `~`.
        chain: PathBuf,
        /// File of the private key in PEM.
        key: PathBuf,
    },
}

impl SecretName {
    /// Parses a name; `None` if the agent does not serve it.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "default" => return Some(Self::Workload),
            "ROOTCA" => return Some(Self::Roots),
            "file-root:system" => return Some(Self::SystemRoots),
            _ => {}
        }

        let path = |text: &str| {
            Some(PathBuf::from(text)).filter(|_| !text.is_empty() && !text.contains('~'))
        };

        if let Some(files) = name.strip_prefix("file-cert:") {
            let (chain, key) = files.split_once('~')?;
            return Some(Self::FileCertificate {
                chain: path(chain)?,
                key: path(key)?,
            });
        }

        name.strip_prefix("file-root:")
            .and_then(path)
            .map(Self::FileRoots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_parsed() {
        for (name, expected) in [
            ("default", Some(SecretName::Workload)),
            ("ROOTCA", Some(SecretName::Roots)),
            ("file-root:system", Some(SecretName::SystemRoots)),
            (
                "file-root:/a/b.pem",
                Some(SecretName::FileRoots("/a/b.pem".into())),
            ),
            ("file-root:", None),
            ("file-root:/a~/b", None),
            (
                "file-cert:/c.pem~/k.pem",
                Some(SecretName::FileCertificate {
                    chain: "/c.pem".into(),
                    key: "/k.pem".into(),
                }),
            ),
            ("file-cert:/c.pem", None),
            ("file-cert:/c.pem~", None),
            ("file-cert:/c~/k~/x", None),
            ("kubernetes://shop/tls", None),
            ("", None),
        ] {
            assert_eq!(SecretName::parse(name), expected, "{name}");
        }
    }
}
