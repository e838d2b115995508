//! The sample mesh of `deploy/samples/bookshop`, running: its files in a directory of their own,
//! its backends, its Envoys.

pub mod kubernetes;
pub mod pods;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::backend::Backend;
use crate::envoy::{AdsProtocol, Envoy, EnvoyConfig};
use crate::ports::Taken;
use crate::{client, ports, wait};

/// The port that every backend listens on (`targetPort` of the sample's services).
const BACKEND_PORT: u16 = 8081;
/// The backends: name and last byte of 127.0.10.x, as in the sample's EndpointSlices.
const BACKENDS: [(&str, u8); 6] = [
    ("storefront", 11),
    ("catalog 1", 21),
    ("catalog 2", 22),
    ("reviews v1", 31),
    ("reviews v2", 32),
    ("bank", 41),
];
/// The listen address of the gateway's Envoy (the port of the sample's Gateway).
pub const GATEWAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 18080);
/// The listen address of the client's sidecar for the shop's services, which all have port 9080.
pub const SIDECAR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9080);

/// All ports that the sample prescribes.
pub const PORTS: [u16; 3] = [BACKEND_PORT, GATEWAY.port(), SIDECAR.port()];

/// The sample mesh's files and backends.
#[derive(Debug)]
pub struct Bookshop {
    /// The copy of the sample.
    folder: TempDir,
    /// Running HTTP servers on 127.0.10.x, one for each endpoint of the sample's EndpointSlices.
    pub backends: Vec<Backend>,
    /// The locks of its ports, which only one test holds at a time.
    _ports: Taken,
}

impl Bookshop {
    /// Copies the sample from the checkout at `root` and starts its backends.
    ///
    /// # Errors
    /// If a file cannot be copied or an address is in use.
    pub async fn open(root: &Path) -> Result<Self> {
        let ports = ports::take(&PORTS).await?;
        let folder = tempfile::tempdir()?;
        let sample = root.join("deploy/samples/bookshop");
        for entry in std::fs::read_dir(&sample)
            .with_context(|| format!("cannot read {}", sample.display()))?
        {
            let entry = entry?;
            std::fs::copy(entry.path(), folder.path().join(entry.file_name()))?;
        }

        std::fs::copy(
            root.join("deploy/samples/mesh.yaml"),
            folder.path().join(".mesh"),
        )?;
        let mut backends = Vec::new();

        for (name, last) in BACKENDS {
            backends.push(
                Backend::start(name, SocketAddr::from(([127, 0, 10, last], BACKEND_PORT))).await?,
            );
        }

        Ok(Self {
            folder,
            backends,
            _ports: ports,
        })
    }

    /// The directory for `--config-dir`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The flags with the sample's mesh config.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        vec![format!("--mesh-config={}", self.file(".mesh").display())]
    }

    /// Where the copy of a file is, such as `gateway.yaml`; the file need not exist.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces `from` by `to` in a file like an editor: writes a new file and renames it over the
    /// old one.
    ///
    /// # Errors
    /// If the text is not in the file, or it cannot be written.
    pub fn edit(&self, name: &str, from: &str, to: &str) -> Result<()> {
        let path = self.file(name);
        let text = std::fs::read_to_string(&path)?;
        anyhow::ensure!(text.contains(from), "{name} has no {from:?}");
        self.write(name, &text.replace(from, to))
    }

    /// Writes a file like an editor.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let draft = self.file(&format!(".{name}.draft"));
        std::fs::write(&draft, text)?;
        std::fs::rename(&draft, self.file(name))?;
        Ok(())
    }
}

/// The objects of the sample in the checkout at `root`, by file.
///
/// # Errors
/// If a file cannot be read.
fn read(root: &Path) -> Result<Vec<Value>> {
    let mut files: Vec<_> =
        std::fs::read_dir(root.join("deploy/samples/bookshop"))?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    let mut objects = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file.path())?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("cannot read {}", file.path().display()))?;
        objects.extend(documents.into_iter().filter(|object| !object.is_null()));
    }
    Ok(objects)
}

/// Starts the gateway's Envoy.
///
/// # Errors
/// As [`Envoy::start`].
pub async fn gateway(xds: SocketAddr, protocol: AdsProtocol) -> Result<Envoy> {
    let metadata = json!({"LABELS": {"istio": "ingressgateway"}, "SERVICE_ACCOUNT": "gateway"});
    let config = EnvoyConfig {
        kind: "router".to_owned(),
        pod: "gateway-1".to_owned(),
        namespace: "istio-system".to_owned(),
        ip: "127.0.20.1".to_owned(),
        metadata,
        xds,
        protocol,
        sds: None,
        token: None,
    };
    Envoy::start(&config).await
}

/// Starts a shopper's sidecar. Without traffic capture (`INTERCEPTION_MODE: NONE`) it opens the
/// ports of the services.
///
/// # Errors
/// As [`Envoy::start`].
pub async fn sidecar(xds: SocketAddr, protocol: AdsProtocol) -> Result<Envoy> {
    sidecar_with_token(xds, protocol, None).await
}

/// The same, with a token of its service account `shopper`.
///
/// # Errors
/// As [`Envoy::start`].
pub async fn sidecar_with_token(
    xds: SocketAddr,
    protocol: AdsProtocol,
    token: Option<String>,
) -> Result<Envoy> {
    let metadata = json!({"LABELS": {"app": "shopper"}, "SERVICE_ACCOUNT": "shopper", "INTERCEPTION_MODE": "NONE"});
    let config = EnvoyConfig {
        kind: "sidecar".to_owned(),
        pod: "shopper-1".to_owned(),
        namespace: "bookshop".to_owned(),
        ip: "127.0.20.2".to_owned(),
        metadata,
        xds,
        protocol,
        sds: None,
        token,
    };
    Envoy::start(&config).await
}

/// Waits until ten consecutive requests to a host of the shop, through its gateway or the shopper's
/// sidecar, are answered by the wanted backend. Returns the duration.
///
/// # Panics
/// On a timeout, with the last answers.
pub async fn answered(what: &str, host: &str, path: &str, wanted: &str) -> Duration {
    let begun = Instant::now();
    let address = if host.contains("example.com") {
        GATEWAY
    } else {
        SIDECAR
    };
    let what = format!("{what}: {host}{path} is routed to {wanted:?}");
    let found = wait::until_some(&what, async || {
        wait::wanted(ask(address, host, path, 10).await, |answers| {
            answers
                .as_ref()
                .is_ok_and(|answers| answers.get(wanted) == Some(&10))
        })
    });
    drop(found.await);
    begun.elapsed()
}

/// Sends `count` requests one after the other and counts the answers by backend; any status but 200
/// is counted by status.
///
/// # Errors
/// If no response arrives.
pub async fn ask(
    address: SocketAddr,
    host: &str,
    path: &str,
    count: usize,
) -> Result<BTreeMap<String, usize>> {
    let mut answers = BTreeMap::new();
    for _ in 0..count {
        let reply = client::get(address, host, path, &[]).await?;
        let who = if reply.status == 200 {
            reply.body
        } else {
            reply.status.to_string()
        };
        *answers.entry(who).or_default() += 1;
    }
    Ok(answers)
}
