//! Exhausted resources of the machine: disk space and file descriptors.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::wait;
use nix::sys::resource::{Resource, setrlimit};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::network::{self, client, connect};
use crate::others::{certificate, page};
use crate::plane::{HTTP, Plane, XDS, program};

/// How long recovery may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a condition holds, and returns how long that took.
async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) -> Duration {
    let begun = Instant::now();
    wait::until_within(TIMEOUT, what, holds).await;
    begun.elapsed()
}

/// Runs `navarch ca` on the server's machine; returns its output, and whether it succeeded.
fn ca(plane: &Plane, words: &[&str]) -> Result<(bool, String)> {
    let mut command = Command::new(program());
    command
        .arg("ca")
        .args(words)
        .args(["--address", &plane.local_http().to_string()]);
    let output = command.output()?;
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    ))
}

#[test]
fn a_full_disk_keeps_the_root_that_signs_until_there_is_room() -> Result<()> {
    let test = "limits::a_full_disk_keeps_the_root_that_signs_until_there_is_room";
    network::run(test, full_disk)
}

async fn full_disk() -> Result<()> {
    // A small file system, visible only in the test's own mount namespace.
    let disk = tempfile::tempdir()?;
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(disk.path())
        .status()?;
    ensure!(mounted.success(), "the file system could not be mounted");

    let plane = Plane::start_in(
        Some(disk.path().join("state")),
        &[("NAVARCH_ROOT_OVERLAP", "1s")],
    )
    .await?;
    let file = |name: &str| {
        std::fs::read_to_string(disk.path().join("state").join(name)).unwrap_or_default()
    };
    let root = file("ca-cert.pem");

    let key = file("ca-key.pem");
    ensure!(
        root.contains("BEGIN CERTIFICATE") && key.contains("PRIVATE KEY"),
        "the root is stored"
    );

    let ballast = disk.path().join("ballast");
    let full = fill(&ballast)?;
    let csr = CertificateParams::default()
        .serialize_request(&KeyPair::generate()?)?
        .pem()?;
    let token = plane.issuer.token(json!({}));
    let (good, output) = ca(&plane, &["rotate"])?;
    ensure!(
        !good && output.contains("No space left on device"),
        "a root that cannot be stored is not started: {output}"
    );

    certificate(client(4, 1), &token, csr.clone())
        .await
        .context("certificates are still issued")?;
    ensure!(plane.navarch.is_ready().await, "it is still ready");
    ensure!(
        (file("ca-cert.pem"), file("ca-key.pem")) == (root.clone(), key),
        "the stored root is unchanged"
    );

    drop(full);
    std::fs::remove_file(&ballast)?;
    let begun = Instant::now();
    let (good, output) = ca(&plane, &["rotate"])?;
    ensure!(good, "the rotation works with free space: {output}");
    let rotated = until("another root signs", async || file("ca-cert.pem") != root).await;
    println!(
        "chaos: disk full: rotation rejected, certificates were still issued; a new root signs {rotated:?} after space is free"
    );

    certificate(client(4, 1), &token, csr)
        .await
        .context("certificates are still issued")?;
    let kept = file("ca-cert.pem");
    let plane = plane.restart().await?;
    ensure!(
        file("ca-cert.pem") == kept,
        "the new root is loaded after a restart"
    );

    ensure!(begun.elapsed() < TIMEOUT * 2, "recovered");
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

/// Fills a disk.
fn fill(file: &PathBuf) -> Result<std::fs::File> {
    use std::io::Write as _;
    let mut full = std::fs::File::create(file)?;
    while full.write_all(&[7; 512]).is_ok() {}
    Ok(full)
}

#[test]
fn at_the_limit_of_open_files_no_change_is_lost() -> Result<()> {
    network::run(
        "limits::at_the_limit_of_open_files_no_change_is_lost",
        open_files,
    )
}

async fn open_files() -> Result<()> {
    // The server inherits the limit. The test itself needs more files, so it raises its own soft
    // limit after starting the server.
    let (soft, hard) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, 160, hard)?;
    let plane = Plane::start().await;
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    let plane = plane?;
    let write = |host: &str| {
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: e, namespace: shop}}\nspec: {{hosts: \
             [{host}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{{address: 11.1.1.1}}]}}\n"
        );
        let draft = plane.folder().join("draft");
        std::fs::write(&draft, text)?;
        std::fs::rename(draft, plane.mesh().join("e.yaml")).map_err(anyhow::Error::from)
    };

    let knows = async |host: &str| {
        let page = timeout(
            Duration::from_secs(2),
            page(
                [127, 0, 0, 1].into(),
                HTTP,
                "/debug/configz",
                &[("host", "localhost")],
            ),
        )
        .await;
        page.is_ok_and(|page| page.is_ok_and(|(status, body)| status == 200 && body.contains(host)))
    };

    write("before.example")?;
    until("the first version is read", async || {
        knows("before.example").await
    })
    .await;

    // Many clients with many addresses, so that per-address limits keep no files free.
    let mut open = JoinSet::new();

    for number in 0..600 {
        open.spawn(async move {
            timeout(
                Duration::from_secs(5),
                connect(
                    client(70 + u8::try_from(number / 200).unwrap(), number),
                    XDS,
                ),
            )
            .await
        });
    }

    let held: Vec<_> = open.join_all().await;
    let used = || navarch_testkit::usage::usage(plane.navarch.pid()).map(|usage| usage.files);
    until("all files are used", async || {
        used().is_ok_and(|files| files >= 120)
    })
    .await;
    write("meanwhile.example")?;
    sleep(Duration::from_secs(3)).await;

    let files = used()?;
    drop(held);
    let begun = Instant::now();
    let read = until("what was written meanwhile is read", async || {
        knows("meanwhile.example").await
    })
    .await;
    let csr = CertificateParams::default()
        .serialize_request(&KeyPair::generate()?)?
        .pem()?;

    let token = plane.issuer.token(json!({}));
    until("certificates are issued", async || {
        certificate(client(4, 1), &token, csr.clone()).await.is_ok()
    })
    .await;
    println!(
        "chaos: {files} of 160 files open: a change takes effect {read:?}, all checks pass {:?} after they are closed",
        begun.elapsed()
    );

    let state: Value = serde_json::from_str(
        &page(
            [127, 0, 0, 1].into(),
            HTTP,
            "/debug/configz",
            &[("host", "localhost")],
        )
        .await?
        .1,
    )?;

    ensure!(
        !state.to_string().contains("before.example"),
        "the previous version is no longer in force"
    );
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");

    Ok(())
}
