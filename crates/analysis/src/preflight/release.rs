//! Releases of Istio: which one an image is of, and which are supported.

use navarch_api::yaml::{self, Schema};
use navarch_base::version::ISTIO_VERSION;
use serde_json::{Map, Value};

/// The chart's profiles, platforms, and defaults of earlier releases.
const PROFILES: &str = include_str!("../../../../deploy/charts/navarch/files/profiles.yaml");

/// The version of Istio's charts in its repository, of which no release is made.
const UNRELEASED_CHART: &str = "1.0.0";

/// A minor release of Istio: `31` for 1.31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Minor(u32);

impl Minor {
    /// The minor release of a version, such as `1.31.0-distroless`.
    pub(super) fn parse(version: &str) -> Option<Self> {
        let mut numbers = version.trim_start_matches('v').split(['.', '-', '_']);
        let is_istios = numbers.next() == Some("1");
        let minor = numbers.next()?.parse().ok()?;
        is_istios.then_some(Self(minor))
    }

    /// The minor release of an image's tag.
    pub(super) fn of_image(image: &str) -> Option<Self> {
        Self::parse(tag(image)?)
    }

    /// The minor release of the chart with this version. In Istio's repository the charts have a
    /// version that is none: its release builder replaces it (`stampChartForRelease`).
    pub(super) fn of_chart(version: &str) -> Option<Self> {
        Self::parse(version).filter(|_| version != UNRELEASED_CHART)
    }

    /// The release whose behaviour Navarch has.
    pub(super) fn of_navarch() -> Option<Self> {
        Self::parse(ISTIO_VERSION)
    }

    /// The oldest release whose defaults the chart has.
    pub(super) fn oldest() -> Option<Self> {
        with_defaults().into_iter().min()
    }

    /// Whether the chart has the defaults of this release (`compatibilityVersion`).
    pub(super) fn has_defaults(self) -> bool {
        with_defaults().contains(&self)
    }
}

impl std::fmt::Display for Minor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

/// The tag of an image's reference, without its digest.
fn tag(image: &str) -> Option<&str> {
    let named = image.split('@').next().unwrap_or_default();
    let (_, tag) = named.rsplit_once(':')?;
    // A registry's port is followed by a path.
    Some(tag).filter(|tag| !tag.contains('/'))
}

/// The releases whose defaults the chart has.
fn with_defaults() -> Vec<Minor> {
    let profiles = yaml::parse(PROFILES, Schema::V1_2).unwrap_or_default();
    let releases = profiles.get("compatibility").and_then(Value::as_object);
    let releases = releases.into_iter().flat_map(Map::keys);
    releases
        .filter_map(|release| Minor::parse(release))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_an_image_is_that_of_its_tag() {
        for (image, minor) in [
            ("docker.io/istio/pilot:1.31.0-distroless", Some(31)),
            ("registry:5000/istio/pilot:v1.29.3@sha256:abc", Some(29)),
            ("registry:5000/istio/pilot", None),
            ("istio/pilot:latest", None),
            ("istio/pilot:2.1.0", None),
        ] {
            assert_eq!(Minor::of_image(image), minor.map(Minor), "{image}");
        }
    }

    #[test]
    fn a_chart_of_the_repository_is_of_no_release() {
        assert_eq!(Minor::of_chart("1.31.0"), Some(Minor(31)));
        assert_eq!(Minor::of_chart("1.0.0"), None);
        assert_eq!(Minor::of_chart(""), None);
    }

    #[test]
    fn the_chart_has_the_defaults_of_earlier_releases() {
        assert!(Minor::oldest() < Minor::of_navarch());
        assert!(Minor(30).has_defaults() && !Minor(1).has_defaults());
        assert_eq!(Minor(30).to_string(), "1.30");
    }
}
