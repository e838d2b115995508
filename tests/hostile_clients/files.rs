//! Attacks by objects and files in the configuration directory.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use nix::sys::stat::Mode;
use tokio::time::{Instant, sleep, sleep_until};

/// The number of hosts of the large object.
const HOSTS: usize = 6_000;

/// A ServiceEntry of many hosts that is exported to one namespace only, and edits of one host.
pub(crate) async fn many_hosts(folder: PathBuf, time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    let draft = folder.with_extension("hosts");
    let file = folder.join("hosts.yaml");
    let mut edits = 0;

    while Instant::now() < end {
        let mut hosts = String::new();
        for number in 0..HOSTS {
            write!(hosts, "h{number}.example, ")?;
        }

        std::fs::write(
            &draft,
            format!(
                "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: many, namespace: noisy}}\n\
                 spec: {{hosts: [{hosts}edit{edits}.example], exportTo: ['.'], resolution: STATIC, \
                 ports: [{{number: 80, name: http, protocol: HTTP}}], endpoints: [{{address: 10.1.1.1}}]}}\n"
            ),
        )?;

        std::fs::rename(&draft, &file)?;
        edits += 1;
        sleep(Duration::from_secs(1)).await;
    }

    std::fs::remove_file(file)?;
    Ok(format!("{HOSTS} hosts, written {edits} times"))
}

/// A symbolic link to a device that never ends.
pub(crate) async fn device(folder: PathBuf, time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    let link = folder.join("zero.yaml");
    std::os::unix::fs::symlink("/dev/zero", &link)?;
    sleep_until(end).await;
    std::fs::remove_file(link)?;
    Ok("a link to /dev/zero".to_owned())
}

/// A FIFO without a writer. It stays, so that the server must also exit while it exists.
pub(crate) async fn fifo(folder: PathBuf, time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    nix::unistd::mkfifo(&folder.join("fifo.yaml"), Mode::S_IRWXU)?;
    sleep_until(end).await;
    Ok("a FIFO without a writer".to_owned())
}
