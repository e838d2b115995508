//! Network namespaces on a bridge.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

/// A bridge in this network namespace and the namespaces connected to it. All are removed when
/// dropped.
pub(crate) struct Net {
    /// The prefix of all names.
    prefix: String,
    /// The first three bytes of all addresses.
    network: [u8; 3],
    names: Vec<String>,
}

/// The number of bridges this process has created; several may exist at once.
static BRIDGES: AtomicU32 = AtomicU32::new(0);

/// Runs `ip`.
fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .context("cannot run ip")?;
    ensure!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

impl Net {
    /// Creates a bridge with an address.
    pub(crate) fn new() -> Result<Self> {
        sweep();
        let pid = std::process::id();
        let number = BRIDGES.fetch_add(1, Ordering::Relaxed);
        let part = |number: u32| u8::try_from(number % 256).unwrap_or(0);
        let place = pid * 4 + number;

        // The addresses of services are in 10.96.0.0/16.
        let network = [10, 100 + part(place / 256 % 64), part(place)];
        let net = Self {
            prefix: format!("nv{pid}x{number}"),
            network,
            names: Vec::new(),
        };
        ip(&format!("link add {}br type bridge", net.prefix))?;

        ip(&format!(
            "addr add {}/24 dev {}br",
            net.address(1),
            net.prefix
        ))?;
        ip(&format!("link set {}br up", net.prefix))?;

        Ok(net)
    }

    /// The address with this last part; 1 is the bridge's.
    pub(crate) fn address(&self, last: u8) -> Ipv4Addr {
        let [first, second, third] = self.network;
        Ipv4Addr::new(first, second, third, last)
    }

    /// Creates a namespace with an address. Its DNS resolver is `resolver`; `hosts` are in its
    /// `/etc/hosts`.
    pub(crate) fn namespace(
        &mut self,
        name: &str,
        last: u8,
        hosts: &str,
        resolver: &str,
    ) -> Result<String> {
        let Self { prefix, .. } = &*self;
        let space = format!("{prefix}-{name}");
        let folder = etc(&space);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(
            folder.join("hosts"),
            format!("127.0.0.1 localhost\n{hosts}"),
        )?;

        std::fs::write(folder.join("resolv.conf"), resolver)?;
        ip(&format!("netns add {space}"))?;
        self.names.push(space.clone());
        let port = format!("{}p{last}", self.prefix);
        ip(&format!(
            "link add {port} type veth peer name eth0 netns {space}"
        ))?;
        ip(&format!("link set {port} master {}br up", self.prefix))?;

        for line in [
            "link set lo up".to_owned(),
            format!("addr add {}/24 dev eth0", self.address(last)),
            "link set eth0 up".to_owned(),
            format!("route add default via {}", self.address(1)),
        ] {
            ip(&format!("-n {space} {line}"))?;
        }

        Ok(space)
    }
}

/// The directory that `ip netns exec` mounts over `/etc`.
fn etc(space: &str) -> PathBuf {
    Path::new("/etc/netns").join(space)
}

/// Removes namespaces and bridges of tests that were killed.
fn sweep() {
    let Ok(spaces) = std::fs::read_dir("/run/netns") else {
        return;
    };
    for space in spaces.flatten() {
        let name = space.file_name().to_string_lossy().into_owned();
        let prefix = name.split('-').next().unwrap_or_default();
        let pid = prefix
            .strip_prefix("nv")
            .and_then(|rest| rest.split('x').next());
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            drop(ip(&format!("netns del {name}")));
            drop(ip(&format!("link del {prefix}br")));
            drop(std::fs::remove_dir_all(etc(&name)));
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            drop(ip(&format!("netns del {name}")));
            drop(std::fs::remove_dir_all(etc(name)));
        }
        drop(ip(&format!("link del {}br", self.prefix)));
    }
}
