//! The duration of two queries: the effect of a change (`navarch plan`), and whether all proxies
//! have applied an object (`navarch applied`).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::client;
use navarch_testkit::usage::usage;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Sizes;
use super::plane::{Plane, end};
use crate::checkout::Checkout;
use crate::distribution::median;
use crate::figure::{Figure, Found};
use crate::units::millis;

/// The maximum duration of `navarch plan`, in seconds.
const PLAN: f64 = 1.0;
/// The maximum duration of `navarch applied`, in milliseconds.
const APPLIED: f64 = 50.0;

/// Plans an edit of a VirtualService that all proxies use.
pub(crate) async fn plan(checkout: &Checkout, sizes: &Sizes) -> Result<Found> {
    let plane = Plane::start(checkout, sizes.plan_services, &[], &[]).await?;
    let proxies = plane.proxies(sizes.plan_proxies).await?;
    let (_, _, file) = plane.rule();
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", file.display()))?;
    let changed = text.replace("10s", "5s");
    ensure!(changed != text, "the VirtualService has no timeout: {text}");
    let change = plane.path().join("change.yaml");
    std::fs::write(&change, changed)?;

    let change = change.display().to_string();
    let before = usage(plane.navarch.pid())?;
    let mut times = Vec::new();
    let mut reached = Value::Null;

    for _ in 0..sizes.plans {
        let (took, plan) = plane.ask(&["plan", "-f", &change])?;
        ensure!(
            plan["reached"] == json!(sizes.plan_proxies),
            "the change reaches only {} proxies",
            plan["reached"]
        );
        times.push(took.as_secs_f64());
        reached =
            json!({ "reached": plan["reached"], "types": plan["types"], "bytes": plan["bytes"] });
    }

    let after = usage(plane.navarch.pid())?;
    let steps = steps(&plane, &change).await?;
    end(proxies).await?;
    let what = format!(
        "`navarch plan` of a VirtualService, {} services, {} proxies, median of {}",
        sizes.plan_services, sizes.plan_proxies, sizes.plans
    );
    let detail = json!({ "seconds": times, "steps_ms": steps, "plan": reached, "before": before, "after": after });

    let figures = vec![Figure::with_goal(what, median(times), "s", PLAN)];
    Ok(Found { figures, detail })
}

/// The duration of each step of another plan, in milliseconds, from the response's `Server-Timing`.
async fn steps(plane: &Plane<'_>, change: &str) -> Result<Value> {
    let proposal =
        json!({ "files": [{ "place": change, "text": std::fs::read_to_string(change)? }] });
    let reply = client::post(
        plane.navarch.monitoring,
        "localhost",
        "/debug/plan?part=true",
        proposal.to_string(),
    )
    .await?;
    ensure!(
        reply.status == 200,
        "a plan: {} {}",
        reply.status,
        reply.body
    );

    let timing = reply
        .headers
        .get("server-timing")
        .context("the response has no Server-Timing")?
        .to_str()?;
    let step = |step: &str| {
        let (name, took) = step.split_once(";dur=")?;
        Some((name.to_owned(), json!(took.parse::<f64>().ok()?)))
    };
    let steps: Option<serde_json::Map<_, _>> = timing.split(", ").map(step).collect();

    Ok(steps
        .with_context(|| format!("cannot read {timing:?}"))?
        .into())
}

/// Queries how many proxies have applied a VirtualService that all use.
pub(crate) async fn applied(checkout: &Checkout, sizes: &Sizes) -> Result<Found> {
    let plane = Plane::start(checkout, sizes.services, &[], &[]).await?;
    let count = sizes.applied_proxies;
    let proxies = plane.proxies(count).await?;
    let (namespace, name, _) = plane.rule();
    let path = format!("/debug/applied?object=virtualservice/{namespace}/{name}");
    let mut commands = Vec::new();
    let mut requests = Vec::new();

    for _ in 0..sizes.asks {
        let (took, answer) = plane.ask(&["applied", "virtualservice", name, "-n", &namespace])?;
        is_taken(&answer["replicas"][0]["applied"], count)?;
        commands.push(millis(took));
        let (took, answer) = get(&plane, &path).await?;
        is_taken(&answer, count)?;
        requests.push(millis(took));
    }

    end(proxies).await?;
    let detail = json!({ "command_ms": commands, "request_ms": requests });
    let what = |what: &str| format!("{what}, {count} proxies, median of {}", sizes.asks);
    let figures = vec![
        Figure::with_goal(what("`navarch applied`"), median(commands), "ms", APPLIED),
        Figure::with_goal(
            what("its request of `/debug/applied`"),
            median(requests),
            "ms",
            APPLIED,
        ),
    ];

    Ok(Found { figures, detail })
}

/// Requests a debug page, and returns the duration and the content.
async fn get(plane: &Plane<'_>, path: &str) -> Result<(Duration, Value)> {
    let begun = Instant::now();
    let reply = client::get(plane.navarch.monitoring, "localhost", path, &[]).await?;
    let took = begun.elapsed();
    ensure!(
        reply.status == 200,
        "{path}: {} {}",
        reply.status,
        reply.body
    );
    Ok((took, serde_json::from_str(&reply.body)?))
}

/// Fails unless exactly this number of proxies use the object, and all have applied it.
fn is_taken(applied: &Value, proxies: usize) -> Result<()> {
    ensure!(
        [&applied["reached"], &applied["taken"]] == [&json!(proxies); 2],
        "{proxies} proxies, and {applied}"
    );
    Ok(())
}
