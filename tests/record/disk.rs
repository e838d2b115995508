//! Small, full or read-only disks: the record stays within its size limit, and proxies are still
//! served.

use std::path::Path;
use std::process::Command;

use navarch_testkit::skip::skip;
use navarch_testkit::wait::until;

use crate::proxy::Reaction;
use crate::{bookshop, edit, record_contains, replayed, segments, sidecars, start, text};

/// The size of a record in bytes.
fn size(record: &Path) -> u64 {
    segments(record)
        .iter()
        .filter_map(|path| std::fs::metadata(path).ok())
        .map(|metadata| metadata.len())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recording_stays_within_its_size_and_remains_replayable() {
    let folder = bookshop();
    let record = tempfile::tempdir().unwrap();
    let navarch = start(folder.path(), record.path(), &["--record-max-size=1Mi"]).await;
    let _proxies = sidecars(&navarch, &[Reaction::Accept, Reaction::Accept]).await;
    record_contains(record.path(), "{\"took\":", 2).await;

    for weight in 0..60 {
        edit(folder.path(), weight, 60_000);
        record_contains(record.path(), &format!("\"weight\":{weight}}}"), 1).await;
        assert!(size(record.path()) <= 1 << 20, "{}", size(record.path()));
    }

    assert!(navarch.stop().await.unwrap());
    assert!(size(record.path()) <= 1 << 20, "{}", size(record.path()));
    let all = segments(record.path());
    let first = all[0].file_name().unwrap().to_string_lossy().into_owned();
    assert!(
        all.len() >= 2 && first != "record-0000000001.jsonl",
        "{all:?}"
    );

    let (replay, code) = replayed(record.path());
    assert_eq!(
        (code, &replay["same"]),
        (0, &true.into()),
        "{}",
        replay["broken"]
    );

    assert!(
        replay["steps"][0]["what"]["begun"]["proxies"] == 2,
        "{}",
        replay["steps"][0]
    );

    // The next process continues the same ring of files.
    let navarch = start(folder.path(), record.path(), &["--record-max-size=1Mi"]).await;
    assert!(navarch.stop().await.unwrap());
    let (replay, code) = replayed(record.path());
    let runs = replay["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|step| !step["what"]["begun"].is_null())
        .count();

    assert_eq!((code, runs), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_are_served_if_the_record_cannot_be_written() {
    let folder = bookshop();
    let record = tempfile::tempdir().unwrap();
    let file = record.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let navarch = start(folder.path(), &file, &[]).await;
    until("the failure is logged", || async {
        navarch.output().contains("failed to write the recording")
    })
    .await;
    let _proxies = sidecars(&navarch, &[Reaction::Accept]).await;
    until("a proxy is served", || async {
        navarch
            .page("/debug/syncz")
            .await
            .is_ok_and(|page| page.contains("web-0.bookshop"))
    })
    .await;
    let metrics = navarch.metrics().await.unwrap();
    assert!(
        metrics.contains("navarch_record_active 0")
            && metrics.contains("navarch_record_failures_total 1"),
        "{metrics}"
    );
    assert!(navarch.stop().await.unwrap());
}

/// A small file system. It is unmounted when dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount() -> Option<Self> {
        let disk = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
            .arg(disk.path())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(disk))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_the_record_and_not_the_service() {
    let Some(disk) = Disk::mount() else {
        return skip("mounting a small file system needs root");
    };

    let folder = bookshop();
    let record = disk.0.path().join("record");
    let navarch = start(folder.path(), &record, &[]).await;
    let _proxies = sidecars(&navarch, &[Reaction::Accept]).await;
    record_contains(&record, "{\"took\":", 2).await;

    for weight in 21..27 {
        edit(folder.path(), weight, 60_000);
        let wanted = format!("\"weight\": {weight}");
        until("the edit is in force", || async {
            let page = navarch.page("/debug/configz").await.unwrap_or_default();
            page.replace(": ", ":").contains(&wanted.replace(": ", ":"))
        })
        .await;
    }

    until("the failure is logged", || async {
        navarch.output().contains("failed to write the recording")
    })
    .await;
    let output = navarch.output();
    assert_eq!(
        output.matches("failed to write the recording").count(),
        1,
        "once: {output}"
    );

    assert!(output.contains("No space left on device"), "{output}");
    assert!(!text(&record).is_empty(), "the recorded part stays");
    assert!(navarch.stop().await.unwrap());
}
