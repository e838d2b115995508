//! Values of flags: how they are parsed, and their defaults.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::server::ListenAddress;
use navarch_api::names::ClusterId;
use navarch_base::regular_file;
use navarch_kubernetes::ApiRate;
use navarch_security::serving::ConfiguredFiles;

/// The rate limit of the Kubernetes API client, if either flag is set. The other then has Istio's
/// default.
pub(super) fn rate(per_second: Option<f64>, burst: Option<u32>) -> Option<ApiRate> {
    let is_set = per_second.is_some() || burst.is_some();
    is_set.then(|| ApiRate {
        per_second: per_second.unwrap_or(80.0),
        burst: burst.unwrap_or(160),
    })
}

/// The listen address of ControlZ.
pub(super) fn control(address: &str, port: u16) -> anyhow::Result<ListenAddress> {
    let address = match address {
        "" => return Ok(ListenAddress::Off),
        "*" => format!(":{port}"),
        address if address.contains(':') && !address.starts_with('[') => {
            format!("[{address}]:{port}")
        }
        address => format!("{address}:{port}"),
    };
    address.parse().context("--ctrlz_address")
}

/// Parses a rate within the allowed range.
pub(super) fn per_second(text: &str) -> anyhow::Result<f64> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate| (0.001..=1e6).contains(rate));
    rate.context("must be a number between 0.001 and 1000000")
}

/// The files of Navarch's own certificate: from the flags, or else at istiod's paths, if they
/// exist.
///
/// # Errors
/// If only one of certificate and key is set.
pub(super) fn given(
    chain: Option<PathBuf>,
    key: Option<PathBuf>,
    roots: Option<PathBuf>,
) -> anyhow::Result<Option<ConfiguredFiles>> {
    ensure!(
        chain.is_some() == key.is_some(),
        "--tls-cert-file and --tls-key-file require each other"
    );

    // As in istiod, files that cannot be looked at count as missing here.
    let there = |name: &str| {
        Some(PathBuf::from(format!("./var/run/secrets/istiod/{name}"))).filter(|path| path.exists())
    };

    let pair = chain
        .zip(key)
        .or_else(|| there("tls/tls.crt").zip(there("tls/tls.key")));
    let roots = roots
        .or_else(|| there("ca/root-cert.pem"))
        .or_else(|| there("tls/ca.crt"));
    Ok(pair.map(|(chain, key)| ConfiguredFiles { chain, key, roots }))
}

/// Parses an alias of a cluster, and the cluster's name.
pub(super) fn alias(text: &str) -> anyhow::Result<(String, String)> {
    let (alias, cluster) = text.split_once('=').context("must be ALIAS=CLUSTER")?;
    Ok((alias.to_owned(), cluster.to_owned()))
}

/// The aliases of clusters.
pub(super) fn aliases(pairs: &[(String, String)]) -> BTreeMap<ClusterId, ClusterId> {
    pairs
        .iter()
        .map(|(alias, cluster)| (ClusterId::new(alias), ClusterId::new(cluster)))
        .collect()
}

/// A path, which may be empty: clap's own parser rejects that.
pub(super) fn path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

/// A name in `--registries`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegistryName {
    Kubernetes,
    /// The services of Istio's own tests.
    Mock,
    /// An empty flag has one empty name.
    Empty,
}

/// Parses a name in `--registries`.
pub(super) fn registry(name: &str) -> anyhow::Result<RegistryName> {
    match name {
        "Kubernetes" => Ok(RegistryName::Kubernetes),
        "Mock" => Ok(RegistryName::Mock),
        "" => Ok(RegistryName::Empty),
        _ => anyhow::bail!("only Kubernetes and Mock are supported"),
    }
}

/// The path, unless there is no such file.
pub(super) fn existing_path(path: &str) -> Option<PathBuf> {
    Some(PathBuf::from(path)).filter(|path| regular_file::may_exist(path))
}

/// Parses a duration in Go's format, such as `10s` or `1m30s`.
pub(in crate::cli) fn duration(text: &str) -> anyhow::Result<Duration> {
    let duration = navarch_api::duration::Duration::parse(text)?;
    duration
        .as_std()
        .with_context(|| format!("{text} is negative"))
}
