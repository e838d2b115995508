//! The versions that Navarch reports. The build script (`build.rs`) stamps programs with them.

/// The version of Istio whose behaviour this is: proxies report it, control planes select features
/// by it, and builds of Navarch without a tag begin with it.
pub const ISTIO_VERSION: &str = "1.32.0";

/// The version of a build: that of the nearest tag, else Istio's and the `commit`, because Istio's
/// tools expect a version that begins with `MAJOR.MINOR`.
#[must_use]
pub fn of_build(described: Option<&str>, commit: &str) -> String {
    match described {
        Some(tag) => tag.to_owned(),
        None => format!("{ISTIO_VERSION}-navarch.{commit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_a_tag_has_a_version_with_major_and_minor() {
        assert_eq!(
            of_build(Some("v0.3.1-2-g0f092f8"), "0f092f8"),
            "v0.3.1-2-g0f092f8"
        );
        assert_eq!(
            of_build(None, "0f092f8-dirty"),
            "1.32.0-navarch.0f092f8-dirty"
        );
    }

    #[test]
    fn links_lead_to_the_documentation_of_that_version() {
        let minor = ISTIO_VERSION.rsplit_once('.').unwrap().0;
        let links = include_str!("../../analysis/src/message.rs");
        assert!(links.contains(&format!("https://istio.io/v{minor}/docs/")));
    }
}
