//! From the start of the control plane until it is ready, and until a ztunnel is in sync.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use navarch_testkit::usage::usage;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Sizes;
use super::connect::{PODS, connect, start, world};
use crate::checkout::Checkout;
use crate::distribution::median;
use crate::figure::{Figure, Found};
use crate::plane::{cluster, fill};
use crate::units::megabytes;

/// The delay of the second CPU reading after the control plane became ready.
const LATER: Duration = Duration::from_secs(10);

/// Starts on both meshes, several times each.
///
/// # Errors
/// If a measurement fails.
pub(crate) async fn measure(checkout: &Checkout, sizes: &Sizes) -> Result<Found> {
    let Sizes {
        start_services,
        cold_services,
        ..
    } = *sizes;
    let mut ready = ready(checkout, sizes).await?;
    let cold = cold(checkout, sizes).await?;
    let of = |field: &str| {
        median(
            ready
                .iter()
                .map(|run| run.get(field).and_then(Value::as_f64).unwrap_or(f64::NAN))
                .collect(),
        )
    };

    let pods = start_services * PODS;
    let figures = vec![
        Figure::with_goal(
            format!("ready, {pods} pods of {start_services} services"),
            of("ready_seconds"),
            "s",
            1.5,
        ),
        Figure::with_goal("… CPU until then", of("cpu_seconds"), "s", 1.5),
        Figure::beside("… CPU ten seconds later", of("cpu_seconds_later"), "s"),
        Figure::with_goal("… peak memory until then", of("peak_mb"), "MB", 110.0),
        Figure::with_goal(
            format!(
                "a ztunnel has all of {} pods after the start",
                cold_services * PODS
            ),
            median(cold.clone()),
            "s",
            5.0,
        ),
    ];

    ready.push(json!({ "cold_seconds": cold }));
    Ok(Found {
        figures,
        detail: json!(ready),
    })
}

/// The cost of a start on the mesh with which istiod was measured.
async fn ready(checkout: &Checkout, sizes: &Sizes) -> Result<Vec<Value>> {
    let cluster = cluster(checkout).await?;
    fill(&cluster, world(sizes.start_services), Vec::new()).await?;
    let mut runs = Vec::new();
    for _ in 0..sizes.runs {
        let started = start(checkout, &cluster).await?;
        sleep(LATER).await;
        let later = usage(started.navarch.pid())?;
        started.navarch.stop().await?;
        runs.push(json!({
            "ready_seconds": started.ready.as_secs_f64(), "cpu_seconds": started.usage.cpu_seconds,
            "peak_mb": megabytes(started.usage.peak_kb), "cpu_seconds_later": later.cpu_seconds,
            "rss_mb_later": megabytes(later.rss_kb), "peak_mb_later": megabytes(later.peak_kb),
        }));
    }
    Ok(runs)
}

/// Seconds from the start until a ztunnel is in sync.
async fn cold(checkout: &Checkout, sizes: &Sizes) -> Result<Vec<f64>> {
    let cluster = cluster(checkout).await?;
    let world = world(sizes.cold_services);
    fill(&cluster, world, Vec::new()).await?;
    let mut runs = Vec::new();
    for _ in 0..sizes.runs {
        let started = start(checkout, &cluster).await?;
        let (ztunnels, _) = connect(
            &started.navarch,
            1,
            &Bytes::new(),
            world.services * (1 + PODS),
        )
        .await?;
        runs.push(started.begun.elapsed().as_secs_f64());
        drop(ztunnels);
        started.navarch.stop().await?;
    }

    Ok(runs)
}
