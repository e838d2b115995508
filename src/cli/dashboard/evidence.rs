//! The evidence that the page shows edges with: the output of `navarch scope -o json` in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use axum::body::Bytes;
use navarch_base::regular_file;
use navarch_scope::evidence::{Evidence, MAX_EDGE_EVIDENCE};
use serde_json::json;
use tokio::sync::Semaphore;

/// Maximum size of the file: it has the counters of each pod, too, which the body lacks.
const MAX_FILE: u64 = 256 << 20;

/// The page of the control plane that has evidence as its body.
pub(super) const EDGES_PATH: &str = "/debug/view/edges";

/// A file with evidence.
#[derive(Clone, Debug)]
pub(super) struct EvidenceFile {
    path: Arc<Path>,
    /// Allows one reading at a time: it takes a multiple of the file's size.
    turn: Arc<Semaphore>,
}

impl EvidenceFile {
    /// A file, which is read once to report what is wrong with it.
    ///
    /// # Errors
    /// As [`Self::body`], or if it can be read only once, as a pipe.
    pub(super) fn checked(file: PathBuf) -> anyhow::Result<Self> {
        ensure!(
            file.is_file(),
            "{} is no regular file: evidence is read whenever the page asks",
            file.display()
        );
        let found = Self {
            path: file.into(),
            turn: Arc::new(Semaphore::new(1)),
        };
        found.read()?;
        Ok(found)
    }

    /// The body of a request for edges. The file is read anew, so that the page shows what a later
    /// run has written.
    ///
    /// # Errors
    /// If it cannot be read, is no regular file any more, has no evidence, or has more than a control
    /// plane accepts.
    pub(super) async fn body(&self) -> anyhow::Result<Bytes> {
        let turn = self.turn.clone().acquire_owned().await;
        let turn = turn.context("failed to wait for another reading of the evidence")?;
        let own = self.clone();
        let work = move || {
            // Until the end of the reading, also if the page does not wait for it.
            let _turn = turn;
            own.read()
        };
        let read = tokio::task::spawn_blocking(work).await;
        read.context("failed to read the evidence")?
    }

    fn read(&self) -> anyhow::Result<Bytes> {
        let place = || self.path.display().to_string();
        // What was a regular file at first may be another one by now, such as a FIFO.
        let text = regular_file::read(&self.path, MAX_FILE).with_context(place)?;
        let evidence = Evidence::parse(&text).with_context(place)?;
        let evidence = evidence.into_edge_evidence();
        let body = serde_json::to_vec(&json!({ "evidence": evidence })).with_context(place)?;
        ensure!(
            body.len() <= MAX_EDGE_EVIDENCE,
            "{}: the evidence has {} bytes, and at most {MAX_EDGE_EVIDENCE} can be shown: collect it for \
             fewer namespaces",
            place(),
            body.len()
        );
        Ok(body.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_body_has_the_sums_of_a_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.json");
        let counts = json!({ "requests": 7, "lastSeen": "2026-01-01T00:00:00Z" });
        let observed = json!({
            "since": null,
            "read": "2026-01-01T00:00:00Z",
            "calls": { "reviews.shop.svc.cluster.local": counts },
            "clients": { "spiffe://cluster.local/ns/shop/sa/web": counts },
            "instances": { "web-1": { "read": "2026-01-01T00:00:00Z" } },
        });
        let output = json!({
            "evidence": { "format": 1, "workloads": { "shop/web": observed } },
            "workloads": [],
        });
        std::fs::write(&file, output.to_string()).unwrap();

        let body = EvidenceFile::checked(file).unwrap().read().unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let web = &body["evidence"]["workloads"]["shop/web"];
        assert_eq!(
            web["calls"]["reviews.shop.svc.cluster.local"]["requests"],
            7
        );
        assert_eq!(web["clients"], json!({}));
        assert_eq!(web["instances"], json!({}));
        assert_eq!(body.as_object().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_file_that_becomes_a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calls.json");
        let none = json!({ "evidence": { "format": 1, "workloads": {} } });
        std::fs::write(&path, none.to_string()).unwrap();
        let file = EvidenceFile::checked(path.clone()).unwrap();
        file.body().await.unwrap();

        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = file.body().await.unwrap_err();
        assert!(format!("{error:#}").contains("FIFO"), "{error:#}");
    }

    #[test]
    fn what_has_no_evidence_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("other.json");
        std::fs::write(&file, "{}").unwrap();
        let error = EvidenceFile::checked(file).unwrap_err();
        assert!(format!("{error:#}").contains("other.json"), "{error:#}");
        let error = EvidenceFile::checked("-".into()).unwrap_err();
        assert!(
            error.to_string().contains("- is no regular file"),
            "{error}"
        );
    }
}
