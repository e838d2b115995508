//! The mesh's trust domain and its aliases: an identity of one is also an identity of the others.

use navarch_api::mesh::MeshConfig;

/// The name of the mesh's own trust domain in principals, whatever its actual name.
const LOCAL: &str = "cluster.local";

/// The trust domain and its aliases, the domain first; empty if names are not rewritten.
#[derive(Clone, Debug)]
pub(super) struct TrustDomains(Vec<String>);

impl TrustDomains {
    pub(super) fn new(mesh: &MeshConfig) -> Self {
        Self(
            std::iter::once(&mesh.trust_domain)
                .chain(&mesh.trust_domain_aliases)
                .cloned()
                .collect(),
        )
    }

    /// No trust domains: names are not rewritten.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// Principals with all names of the trust domain. Those of other domains, with a wildcard
    /// domain, or without a domain are unchanged.
    pub(super) fn principals(&self, principals: &[String]) -> Vec<String> {
        principals
            .iter()
            .flat_map(|principal| self.principal(principal))
            .collect()
    }

    /// One principal with all names of the trust domain.
    fn principal(&self, principal: &str) -> Vec<String> {
        let unchanged = || vec![principal.to_owned()];
        if self.0.is_empty() {
            return unchanged();
        }

        let Some((domain, rest)) = principal
            .split_once('/')
            .filter(|(_, rest)| rest.split('/').count() == 4)
        else {
            return unchanged();
        };

        if domain == "*" || !(self.has(domain) || domain == LOCAL) {
            return unchanged();
        }

        let mut all: Vec<String> = Vec::new();

        for name in &self.0 {
            // `*-old/…` is unchanged for the domain `my-old`.
            let is_named = domain
                .strip_prefix('*')
                .is_some_and(|suffix| name.ends_with(suffix));
            let one = if is_named {
                principal.to_owned()
            } else {
                format!("{name}/{rest}")
            };
            if !all.contains(&one) {
                all.push(one);
            }
        }

        all
    }

    /// Whether a domain, which may be a pattern, is one of the mesh's.
    fn has(&self, domain: &str) -> bool {
        let covers = |pattern: &str, text: &str| {
            pattern
                .strip_suffix('*')
                .is_some_and(|prefix| text.starts_with(prefix))
                || pattern
                    .strip_prefix('*')
                    .is_some_and(|suffix| text.ends_with(suffix))
        };
        self.0
            .iter()
            .any(|own| own == domain || covers(own, domain) || covers(domain, own))
    }

    /// Trust domains, with all names of the mesh's if one of these is among them.
    pub(super) fn domains(&self, values: &[String]) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for value in values {
            let meant = if self.0.contains(value) {
                self.0.as_slice()
            } else {
                std::slice::from_ref(value)
            };
            for one in meant {
                if !all.contains(one) {
                    all.push(one.clone());
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(names: &[&str]) -> TrustDomains {
        TrustDomains(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn principals_are_equivalent_in_all_trust_domains_of_the_mesh() {
        let rows: [(&[&str], &str, &[&str]); 9] = [
            (
                &["cluster.local"],
                "cluster.local/ns/a/sa/b",
                &["cluster.local/ns/a/sa/b"],
            ),
            (
                &["new", "old"],
                "old/ns/a/sa/b",
                &["new/ns/a/sa/b", "old/ns/a/sa/b"],
            ),
            (
                &["new", "old"],
                "cluster.local/ns/a/sa/b",
                &["new/ns/a/sa/b", "old/ns/a/sa/b"],
            ),
            (&["new", "old"], "*/ns/a/sa/b", &["*/ns/a/sa/b"]),
            (&["new", "old"], "*sa/b", &["*sa/b"]),
            (&["new", "old"], "third/ns/a/sa/b", &["third/ns/a/sa/b"]),
            (
                &["new", "my-old"],
                "*-old/ns/a/sa/b",
                &["new/ns/a/sa/b", "*-old/ns/a/sa/b"],
            ),
            (
                &["my-new", "my-old"],
                "my-*/ns/a/sa/b",
                &["my-new/ns/a/sa/b", "my-old/ns/a/sa/b"],
            ),
            (&["new"], "/ns/a/sa/b", &["/ns/a/sa/b"]),
        ];

        for (names, principal, expected) in rows {
            assert_eq!(
                domains(names).principals(&[principal.to_owned()]),
                expected,
                "{principal}"
            );
        }
    }

    #[test]
    fn a_trust_domain_alias_expands_to_all_aliases() {
        let values = ["x", "old", "new"].map(str::to_owned);
        assert_eq!(
            domains(&["new", "old"]).domains(&values),
            ["x", "new", "old"]
        );
    }
}
