//! The authorities of companies that sign behind Navarch: a PKCS#11 token, a SPIRE server,
//! cert-manager's controllers.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use navarch_testkit::cert_manager::{self, CertManager, Controllers, ISSUER};
use navarch_testkit::cluster::Cluster;
use navarch_testkit::pkcs11::Token;
use navarch_testkit::skip::skip;
use navarch_testkit::spire::Spire;
use tempfile::TempDir;

use crate::missing;
use crate::world::{Variables, World};

/// The file with the roots of cert-manager's issuer.
const ROOTS_FILE: &str = "roots.pem";

/// An authority, and the settings of the control plane that asks it. Dropping it stops it.
pub(crate) struct Company {
    /// Settings of the control plane, by name.
    variables: Vec<(&'static str, String)>,
    /// Its roots, in PEM.
    pub(crate) roots: String,
    authority: Authority,
}

/// The programs that sign, running as long as it is held.
enum Authority {
    Token {
        _token: Token,
    },
    Spire {
        _server: Spire,
    },
    CertManager {
        programs: CertManager,
        issuer: cert_manager::Company,
        controllers: Option<Controllers>,
        /// The folder of the file with its roots.
        folder: TempDir,
    },
}

/// Whether pods can run here; otherwise the test is skipped with the reason.
fn can_run() -> bool {
    let why = missing();
    if let Some(why) = &why {
        skip(why);
    }
    why.is_none()
}

impl Company {
    /// A token of SoftHSM with its plugin; `None` if the test cannot run here.
    pub(crate) fn with_token() -> Result<Option<Self>> {
        if !can_run() {
            return Ok(None);
        }
        let Some(mut token) = Token::new(Path::new(env!("CARGO_BIN_EXE_navarch")))? else {
            return Ok(None);
        };
        token.start()?;

        Ok(Some(Self {
            variables: vec![
                ("EXTERNAL_CA", "NAVARCH_RA_SOCKET".to_owned()),
                (
                    "NAVARCH_SIGNER_SOCKET",
                    token.socket().display().to_string(),
                ),
            ],
            roots: token.root()?,
            authority: Authority::Token { _token: token },
        }))
    }

    /// A SPIRE server; `None` if the test cannot run here.
    pub(crate) async fn with_spire() -> Result<Option<Self>> {
        if !can_run() {
            return Ok(None);
        }
        let Some(server) = Spire::start().await? else {
            return Ok(None);
        };

        let socket = format!("unix:{}", server.socket().display());
        Ok(Some(Self {
            variables: vec![
                ("EXTERNAL_CA", "NAVARCH_RA_SPIRE".to_owned()),
                ("NAVARCH_SPIRE_SERVER", socket),
            ],
            roots: server.roots()?,
            authority: Authority::Spire { _server: server },
        }))
    }

    /// The controllers of cert-manager, with a CA issuer; `None` if the test cannot run here.
    pub(crate) fn with_cert_manager() -> Result<Option<Self>> {
        if !can_run() {
            return Ok(None);
        }
        let Some(programs) = CertManager::find() else {
            return Ok(None);
        };

        let issuer = cert_manager::Company::new()?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join(ROOTS_FILE);
        std::fs::write(&file, issuer.root())?;

        Ok(Some(Self {
            variables: vec![
                ("EXTERNAL_CA", "NAVARCH_RA_CERT_MANAGER".to_owned()),
                ("NAVARCH_CERT_MANAGER_ISSUER", ISSUER.to_owned()),
                ("NAVARCH_SIGNER_ROOTS", file.display().to_string()),
            ],
            roots: issuer.root().to_owned(),
            authority: Authority::CertManager {
                programs,
                issuer,
                controllers: None,
                folder,
            },
        }))
    }

    /// A world without a control plane whose settings are these and the authority's, with what the
    /// authority needs of the API server.
    pub(crate) async fn world(&mut self, variables: Variables<'_>) -> Result<World> {
        let own = self.variables.iter();
        let own: Vec<_> = own.map(|(name, value)| (*name, value.as_str())).collect();
        let world = World::empty(&[variables, own.as_slice()].concat()).await?;
        self.authority.start(world.cluster()).await?;
        Ok(world)
    }

    /// Adds a further root to the file with those of cert-manager's issuer, which does not sign with
    /// it yet.
    pub(crate) fn name_next_root(&self) -> Result<cert_manager::Company> {
        let Authority::CertManager { issuer, folder, .. } = &self.authority else {
            bail!("the roots of this authority are in no file");
        };

        let next = cert_manager::Company::new()?;
        let new = folder.path().join("new.pem");
        std::fs::write(&new, format!("{}{}", issuer.root(), next.root()))?;
        std::fs::rename(new, folder.path().join(ROOTS_FILE))?;
        Ok(next)
    }
}

impl Authority {
    /// Starts what needs an API server.
    async fn start(&mut self, cluster: &Cluster) -> Result<()> {
        let Self::CertManager {
            programs,
            issuer,
            controllers,
            ..
        } = self
        else {
            return Ok(());
        };

        cluster.apply(&programs.definitions()?)?;
        cluster.wait_for_crds()?;
        let started = programs.start(cluster, issuer).await;
        *controllers = Some(started.context("cert-manager")?);
        Ok(())
    }
}
