//! Image names: `registry/repository:tag` or `…@sha256:digest`.

/// The default registry.
const DEFAULT: &str = "index.docker.io";
/// Maximum length of a name.
const MAX: usize = 512;

/// A parsed image name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The registry, with its port if one is given.
    pub(crate) registry: String,
    pub(crate) repository: String,
    /// The tag or digest.
    pub(crate) version: Version,
}

/// The tag or digest of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// A tag, which may be moved.
    Tag(String),
    /// A digest: sha256 in hexadecimal.
    Digest(String),
}

impl Reference {
    /// Parses a name without scheme.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name.len() > MAX {
            return None;
        }

        let (name, digest) = match name.split_once('@') {
            Some((name, digest)) => (
                name,
                Some(
                    digest
                        .strip_prefix("sha256:")
                        .filter(|hex| is_sha256(hex))?,
                ),
            ),
            None => (name, None),
        };

        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            Some(_) | None => (name, None),
        };
        let is_host = |text: &str| text.contains(['.', ':']) || text == "localhost";
        let (registry, repository) = match name.split_once('/') {
            Some((host, rest)) if is_host(host) => (host, rest.to_owned()),
            Some(_) => (DEFAULT, name.to_owned()),
            None => (DEFAULT, format!("library/{name}")),
        };

        let registry = if registry == "docker.io" {
            DEFAULT
        } else {
            registry
        };

        let repository = if registry == DEFAULT && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository
        };

        let good = |part: &str| {
            !part.is_empty()
                && part.starts_with(|sign: char| sign.is_ascii_alphanumeric())
                && part.chars().all(|sign| {
                    sign.is_ascii_lowercase() || sign.is_ascii_digit() || "._-".contains(sign)
                })
        };

        let good_tag = |tag: &str| {
            !tag.is_empty()
                && tag.len() <= 128
                && tag
                    .chars()
                    .all(|sign| sign.is_ascii_alphanumeric() || "._-".contains(sign))
        };

        if !repository.split('/').all(good)
            || registry.contains(['@', '?', '#'])
            || !tag.is_none_or(good_tag)
        {
            return None;
        }
        let version = match digest {
            Some(digest) => Version::Digest(digest.to_owned()),
            None => Version::Tag(tag.unwrap_or("latest").to_owned()),
        };

        Some(Self {
            registry: registry.to_owned(),
            repository,
            version,
        })
    }

    /// The version in the registry's protocol.
    pub(crate) fn version(&self) -> String {
        match &self.version {
            Version::Tag(tag) => tag.clone(),
            Version::Digest(digest) => format!("sha256:{digest}"),
        }
    }

    /// The URL without version.
    pub(crate) fn name(&self) -> String {
        format!("oci://{}/{}", self.registry, self.repository)
    }
}

/// Whether this is a sha256 in hexadecimal, as in names of digests and files.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|sign| matches!(sign, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_are_parsed_like_docker() {
        let digest = "a".repeat(64);
        let tag = |tag: &str| Version::Tag(tag.to_owned());

        for (name, registry, repository, version) in [
            (
                "busybox",
                "index.docker.io",
                "library/busybox",
                tag("latest"),
            ),
            (
                "docker.io/me/filter:v1",
                "index.docker.io",
                "me/filter",
                tag("v1"),
            ),
            (
                "docker.io/filter",
                "index.docker.io",
                "library/filter",
                tag("latest"),
            ),
            ("localhost:5000/a/b:t", "localhost:5000", "a/b", tag("t")),
            ("ghcr.io/a/b", "ghcr.io", "a/b", tag("latest")),
            (
                &format!("ghcr.io/a/b:t@sha256:{digest}"),
                "ghcr.io",
                "a/b",
                Version::Digest(digest.clone()),
            ),
        ] {
            let expected = Reference {
                registry: registry.to_owned(),
                repository: repository.to_owned(),
                version,
            };
            assert_eq!(Reference::parse(name), Some(expected), "{name}");
        }

        for bad in [
            "",
            "a/../b",
            "ghcr.io/../b",
            "ghcr.io/A",
            "ghcr.io/a@sha256:12",
            "ghcr.io/a:b c",
            "x@y/a:b",
        ] {
            assert_eq!(Reference::parse(bad), None, "{bad}");
        }
    }
}
