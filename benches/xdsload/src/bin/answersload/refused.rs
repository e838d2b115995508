//! How long it takes from the first NACK until all proxies hold the good version of what was edited.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::Sizes;
use crate::figure::{Figure, median};
use crate::plane::{Plane, Programs};

/// What that may take, in milliseconds.
const WELL: f64 = 1_000.0;

/// Has a VirtualService edited, again and again, in a way that proxies refuse.
pub(crate) async fn measure(programs: &Programs, sizes: &Sizes) -> Result<(Vec<Figure>, Value)> {
    let plane = Plane::start(programs, sizes.services, &[], &[]).await?;
    let turns = sizes.refusals.to_string();
    let proxies = plane.proxies(sizes.refusing_proxies, &["--refuse", "--repeat", &turns], |_| Ok(())).await?;
    let quarantined = plane.metric("navarch_quarantined_objects").await?;
    let mut report = proxies.end().await?;
    ensure!(quarantined == 1.0, "{quarantined} objects are quarantined, not the one that is refused");
    let refused = report["refused"].take();
    let turns = refused.as_array().context("the proxies say nothing of what they refused")?;
    let last = |turn: &Value| turn["well"]["last"].as_f64().unwrap_or(f64::NAN);
    let times: Vec<f64> = turns.iter().map(last).collect();
    ensure!(
        times.len() == sizes.refusals && times.iter().all(|time| *time > 0.0),
        "not all turns were refused: {refused}"
    );
    let worst = times.iter().copied().fold(0.0, f64::max);
    let what = format!("quarantine: from the first NACK until all {} proxies are well", sizes.refusing_proxies);
    let figures = vec![
        Figure::with_goal(format!("{what}, the longest of {}", times.len()), worst, "ms", WELL),
        Figure::beside("… median", median(times), "ms"),
    ];
    Ok((figures, refused))
}
