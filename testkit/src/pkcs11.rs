//! An authority whose key is in a PKCS#11 token, SoftHSM from Debian's package `softhsm2`, and the
//! plugin that signs with it for a control plane.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::skip::skip;

/// The library of Debian's package.
const MODULES: [&str; 2] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
];
/// The label of the token, and the organization of its root.
pub const LABEL: &str = "company";

/// A token with a key, and the plugin that signs with it. Dropping it stops the plugin.
#[derive(Debug)]
pub struct Token {
    /// `pkcs11signer`.
    program: PathBuf,
    folder: TempDir,
    module: &'static str,
    plugin: Option<Child>,
}

impl Token {
    /// Makes a token with a key; `None` if there is no SoftHSM. The plugin's program is beside
    /// `navarch`.
    ///
    /// # Errors
    /// If the token cannot be made.
    pub fn new(navarch: &Path) -> Result<Option<Self>> {
        let Some(module) = MODULES.into_iter().find(|path| Path::new(path).exists()) else {
            skip("no SoftHSM: install Debian's package softhsm2 (scripts/cluster/packages)");
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let tokens = folder.path().join("tokens");
        std::fs::create_dir(&tokens)?;
        let config = format!("directories.tokendir = {}\n", tokens.display());
        std::fs::write(folder.path().join("softhsm2.conf"), config)?;
        std::fs::write(folder.path().join("pin"), "4711\n")?;

        let token = Self {
            program: navarch.with_file_name("pkcs11signer"),
            folder,
            module,
            plugin: None,
        };
        let made = token.command("init").output()?;
        ensure!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        Ok(Some(token))
    }

    /// The plugin's program with these arguments.
    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args([what, self.module, LABEL])
            .args([self.path("pin"), self.path("root.pem")])
            .env("SOFTHSM2_CONF", self.path("softhsm2.conf"));
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The socket on which the plugin listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("signer.sock")
    }

    /// The root of the key, in PEM.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn root(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.path("root.pem"))?)
    }

    /// Starts the plugin, and waits until it listens.
    ///
    /// # Errors
    /// If it does not listen.
    pub fn start(&mut self) -> Result<()> {
        let mut plugin = self
            .command("serve")
            .arg(self.socket())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = plugin.stdout.take().context("its output")?;
        self.plugin = Some(plugin);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line == "listening\n", "the plugin does not listen: {line}");
        Ok(())
    }

    /// Stops the plugin.
    pub fn stop(&mut self) {
        if let Some(mut plugin) = self.plugin.take() {
            let _ = plugin.kill();
            let _ = plugin.wait();
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.stop();
    }
}
