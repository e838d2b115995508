//! What the annotation asks for.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::oci::SCHEME;
use crate::oci::reference::{Reference, Version};

/// Maximum length of the annotation's value.
const MAX_LENGTH: usize = 1024;

/// A program that the annotation asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// That of the image.
    Original,
    /// A file in one of the folders of the operator.
    Path(PathBuf),
    /// A signed artefact.
    Artefact(ArtefactName),
}

/// The name of an artefact, with its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtefactName {
    pub(crate) reference: Reference,
    /// The sha256 of its manifest, in hexadecimal.
    pub digest: String,
}

/// Why the value of the annotation, or the file that it names, is refused.
#[derive(Debug, thiserror::Error)]
pub enum WantedError {
    /// The value is neither a path nor an artefact.
    #[error("{0:?} is neither an absolute path nor oci://REPOSITORY@sha256:DIGEST")]
    Unknown(String),
    /// A tag may be moved.
    #[error("{0:?} has no digest: artefacts are named by @sha256:…")]
    NotPinned(String),
    /// The file cannot be read.
    #[error("{path} cannot be read: {source}")]
    File {
        /// The path in the annotation.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is elsewhere.
    #[error("{path} is not in {}", listed(.folders))]
    Folder {
        /// The path with its links followed.
        path: PathBuf,
        /// `NAVARCH_PROXY_UPGRADE_PATHS`.
        folders: Vec<PathBuf>,
    },
    /// The file is a folder, or not executable.
    #[error("{0} is not an executable file")]
    NotExecutable(PathBuf),
    /// Others than the owner can change the file.
    #[error("{0} can be written by others than its owner")]
    Writable(PathBuf),
    /// The owner, who can change the file, is a user of another container, for instance.
    #[error(
        "{path} belongs to user {owner}, who is neither root nor the user of the agent or Envoy"
    )]
    Owner {
        /// Without links.
        path: PathBuf,
        /// The number of the user.
        owner: u32,
    },
}

fn listed(folders: &[PathBuf]) -> String {
    let texts: Vec<_> = folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    texts.join(", ")
}

impl Wanted {
    /// Parses the value of the annotation; without one, that of the image is wanted.
    ///
    /// # Errors
    /// If it is neither a path nor an artefact with a digest.
    pub fn parse(text: &str) -> Result<Self, WantedError> {
        let unknown = || WantedError::Unknown(text.chars().take(MAX_LENGTH).collect());
        if text.len() > MAX_LENGTH {
            return Err(unknown());
        }
        if text.is_empty() {
            return Ok(Self::Original);
        }

        if let Some(name) = text.strip_prefix(SCHEME) {
            let reference = Reference::parse(name).ok_or_else(unknown)?;
            let Version::Digest(digest) = reference.version.clone() else {
                return Err(WantedError::NotPinned(text.to_owned()));
            };
            return Ok(Self::Artefact(ArtefactName { reference, digest }));
        }

        let path = Path::new(text);
        if path.is_absolute() {
            Ok(Self::Path(path.to_owned()))
        } else {
            Err(unknown())
        }
    }
}

/// The file that a path leads to, if it is a program in one of the folders. `user` is that of Envoy,
/// if it is not the agent's own.
///
/// # Errors
/// If it is missing, elsewhere, not executable, or can be written by others than root, the agent and
/// Envoy.
pub fn admitted(
    path: &Path,
    folders: &[PathBuf],
    user: Option<u32>,
) -> Result<PathBuf, WantedError> {
    let failed = |source| WantedError::File {
        path: path.to_owned(),
        source,
    };
    // A link in a folder may lead out of it.
    let target = path.canonicalize().map_err(failed)?;
    let is_inside = folders
        .iter()
        .filter_map(|folder| folder.canonicalize().ok())
        .any(|folder| target.starts_with(folder));
    if !is_inside {
        return Err(WantedError::Folder {
            path: target,
            folders: folders.to_owned(),
        });
    }

    let metadata = target.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode();
    if !metadata.is_file() || mode & 0o111 == 0 {
        return Err(WantedError::NotExecutable(target));
    }
    if mode & 0o022 != 0 {
        return Err(WantedError::Writable(target));
    }

    let owner = metadata.uid();
    let own = nix::unistd::geteuid().as_raw();
    if owner != 0 && owner != own && Some(owner) != user {
        return Err(WantedError::Owner {
            path: target,
            owner,
        });
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn a_value_is_a_path_or_an_artefact_with_a_digest() {
        let digest = "a".repeat(64);
        let artefact = format!("oci://ghcr.io/me/envoy@sha256:{digest}");
        assert_eq!(Wanted::parse("").unwrap(), Wanted::Original);
        assert_eq!(
            Wanted::parse("/usr/local/bin/envoy-1.39").unwrap(),
            Wanted::Path("/usr/local/bin/envoy-1.39".into())
        );
        let Wanted::Artefact(name) = Wanted::parse(&artefact).unwrap() else {
            panic!("no artefact");
        };
        assert_eq!(name.digest, digest);

        let pinned = Wanted::parse("oci://ghcr.io/me/envoy:1.39").unwrap_err();
        assert!(matches!(pinned, WantedError::NotPinned(_)), "{pinned}");
        let long = format!("/{}", "x".repeat(2000));
        for bad in [
            "envoy",
            "../envoy",
            "https://a.example/envoy",
            "oci://",
            &long,
        ] {
            let error = Wanted::parse(bad).unwrap_err();
            assert!(matches!(error, WantedError::Unknown(_)), "{bad}: {error}");
        }
    }

    #[test]
    fn only_programs_in_the_folders_are_admitted() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let folders = [inside.clone(), folder.path().join("missing")];
        let add = |path: PathBuf, mode: u32| {
            write(&path, "#!/bin/sh\n").unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };

        let good = add(inside.join("envoy"), 0o755);
        let found = admitted(&good, &folders, None).unwrap();
        assert_eq!(found, good.canonicalize().unwrap());

        let outside = add(folder.path().join("envoy"), 0o755);
        let link = inside.join("link");
        symlink(&outside, &link).unwrap();
        for path in [outside, link, inside.join("../envoy")] {
            let error = admitted(&path, &folders, None).unwrap_err();
            assert!(matches!(error, WantedError::Folder { .. }), "{error}");
        }

        let refused = |path: &Path| admitted(path, &folders, None).unwrap_err();
        let plain = refused(&add(inside.join("plain"), 0o644));
        assert!(matches!(plain, WantedError::NotExecutable(_)), "{plain}");
        let open = refused(&add(inside.join("open"), 0o775));
        assert!(matches!(open, WantedError::Writable(_)), "{open}");
        let missing = refused(&inside.join("no"));
        assert!(matches!(missing, WantedError::File { .. }), "{missing}");
    }

    #[test]
    fn a_program_of_another_user_is_not_admitted() {
        const OTHER: u32 = 4_242;
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can give a file to another user");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("envoy");
        write(&path, "#!/bin/sh\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        chown(&path, Some(OTHER), Some(OTHER)).unwrap();

        let folders = [folder.path().to_owned()];
        let error = admitted(&path, &folders, None).unwrap_err();
        let is_owner = matches!(error, WantedError::Owner { owner: OTHER, .. });
        assert!(is_owner, "{error}");
        admitted(&path, &folders, Some(OTHER)).unwrap();
    }
}
