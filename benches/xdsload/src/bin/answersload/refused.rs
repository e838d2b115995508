//! How long it takes from the first NACK until all proxies hold the good version of what was
//! edited.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::Sizes;
use crate::figure::{Figure, median};
use crate::plane::{Plane, Programs};

/// What that may take, in milliseconds.
const WELL: f64 = 1_000.0;

/// Has a VirtualService edited, again and again, in a way that proxies refuse: alone, where what
/// the refused part is made of says that it is the one, and together with others, so that halves of
/// them are left out in turn until it is found which.
///
/// # Errors
/// When something else is quarantined, or nothing.
pub(crate) async fn measure(programs: &Programs, sizes: &Sizes) -> Result<(Vec<Figure>, Value)> {
    let (alone, by_provenance) = refusals(programs, sizes, 1).await?;
    let (together, by_bisection) = refusals(programs, sizes, sizes.refused_among).await?;
    let proxies = sizes.refusing_proxies;
    let mut figures = Vec::new();

    for (times, how) in [(alone, "by provenance"), (together, "by bisection")] {
        let among = if how == "by bisection" {
            format!(" of {} edited", sizes.refused_among)
        } else {
            String::new()
        };

        let what = format!(
            "quarantine {how}{among}: from the first NACK until all {proxies} proxies have recovered"
        );
        let worst = times.iter().copied().fold(0.0, f64::max);
        figures.push(Figure::with_goal(
            format!("{what}, the longest of {}", times.len()),
            worst,
            "ms",
            WELL,
        ));

        figures.push(Figure::beside("… median", median(times), "ms"));
    }

    Ok((
        figures,
        json!({ "by_provenance": by_provenance, "by_bisection": by_bisection }),
    ))
}

/// How long all proxies took to be well after each edit of so many objects, one of which they
/// refuse; with all that was seen.
async fn refusals(programs: &Programs, sizes: &Sizes, among: usize) -> Result<(Vec<f64>, Value)> {
    let plane = Plane::start(programs, sizes.services, &[], &[]).await?;
    let turns = sizes.refusals.to_string();
    let among = among.to_string();
    let flags = ["--refuse", "--refuse-among", &among, "--repeat", &turns];
    let proxies = plane
        .proxies(sizes.refusing_proxies, &flags, |_| Ok(()))
        .await?;
    let quarantined = plane.metric("navarch_quarantined_objects").await?;

    let mut report = proxies.end().await?;
    ensure!(
        quarantined == 1.0,
        "{quarantined} objects are quarantined instead of the rejected one"
    );
    let refused = report["refused"].take();
    let turns = refused
        .as_array()
        .context("the proxies did not report rejections")?;

    let last = |turn: &Value| turn["well"]["last"].as_f64().unwrap_or(f64::NAN);
    let times: Vec<f64> = turns.iter().map(last).collect();
    ensure!(
        times.len() == sizes.refusals && times.iter().all(|time| *time > 0.0),
        "not all edits were rejected: {refused}"
    );

    Ok((times, refused))
}
