//! Environment variables of the proxy in the path of an injection request.

use std::collections::BTreeMap;

/// The escape sequence for a slash in a value.
const SLASH: &str = "--slash--";

/// The prefix of each variable in the deprecated form `/inject/:ENV:name=value:ENV:…`.
const ENV: &str = ":ENV:";

/// Parses `/inject/<key>/<value>/…`: `cluster` and `net` set cluster and network of a remote
/// caller, any other key is the case-insensitive name of a variable. A key without a value is
/// ignored.
#[must_use]
pub fn parameters(path: &str) -> BTreeMap<String, String> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some(rest) = path.splitn(3, '/').nth(2) else {
        return BTreeMap::new();
    };

    if rest.starts_with(ENV) {
        let pairs = rest.split(ENV).filter_map(|pair| pair.split_once('='));
        return pairs
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, value)| (variable(name), value.into()))
            .collect();
    }

    let parts: Vec<_> = rest.split('/').collect();
    let mut found = BTreeMap::new();

    for pair in parts.chunks_exact(2) {
        if let [name, value] = pair
            && !name.is_empty()
        {
            found.insert(variable(name), value.replace(SLASH, "/"));
        }
    }

    found
}

fn variable(key: &str) -> String {
    match key {
        "cluster" => "ISTIO_META_CLUSTER_ID".to_owned(),
        "net" => "ISTIO_META_NETWORK".to_owned(),
        _ => key.to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_the_path_become_variables() {
        let expected = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };

        assert_eq!(parameters("/inject"), expected(&[]));
        assert_eq!(parameters("/inject/"), expected(&[]));
        assert_eq!(
            parameters("/inject/cluster/c1/net/n1/foo/a--slash--b/odd/"),
            expected(&[
                ("ISTIO_META_CLUSTER_ID", "c1"),
                ("ISTIO_META_NETWORK", "n1"),
                ("FOO", "a/b")
            ])
        );

        assert_eq!(
            parameters("/inject/:ENV:net=n2:ENV:=x:ENV:y"),
            expected(&[("ISTIO_META_NETWORK", "n2")])
        );
    }
}
