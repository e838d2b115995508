//! The application's probes, scrape targets and labels, from the pod's files and environment.

use navarch::agent::downward_api;
use navarch::agent::status_server::{Probes, ScrapeConfig};

/// Parses one text.
///
/// # Panics
/// If a port of the mesh would be scraped.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(probes) = Probes::parse(&text) {
        assert!(
            probes.get("/etc/passwd").is_none(),
            "only paths of probes are served"
        );
    }
    if let Ok(Some(scrape)) = ScrapeConfig::parse(&text, 15020) {
        assert!(!scrape.targets.is_empty());
        for target in scrape.targets {
            assert!(target.port != 15020 && target.port != 15090 && target.path.starts_with('/'));
        }
    }
    for value in downward_api::parse(&text).into_iter().flatten() {
        assert!(!value.0.contains('='), "a key has no equals sign");
    }
    let _ = downward_api::host_and_port(&text);
}
