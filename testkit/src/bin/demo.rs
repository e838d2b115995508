//! The demo: the bookshop under Navarch with two real Envoys, an edit, an invalid file, and the
//! durations.
//!
//! `demo NAVARCH [ROOT]`: the program to run and the checkout with `deploy/samples`. With
//! `DEMO=once` it ends after the steps, with an error if one fails; otherwise it runs until Ctrl-C.

#![expect(clippy::print_stdout, reason = "a demo prints what it does")]
#![expect(
    clippy::disallowed_methods,
    reason = "the environment decides whether the demo keeps running"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::{self, Bookshop, GATEWAY, SIDECAR};
use navarch_testkit::envoy::AdsProtocol;
use navarch_testkit::navarch::Navarch;
use serde_json::Value;

/// The gateway's proxy id in Navarch's pages.
const GATEWAY_ID: &str = "gateway-1.istio-system";
/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let program = arguments.next().context("usage: demo NAVARCH [ROOT]")?;
    let root = arguments.next().unwrap_or_else(|| PathBuf::from("."));
    let shop = Bookshop::open(&root).await?;
    println!(
        "the bookshop: {} backends on 127.0.10.x, its files in {}",
        shop.backends.len(),
        shop.folder().display()
    );

    let begun = Instant::now();
    let navarch = Navarch::start(&program, shop.folder(), &shop.flags()).await?;
    println!("navarch is ready after {}", milliseconds(begun.elapsed()));
    let mut gateway = bookshop::gateway(navarch.xds, AdsProtocol::Delta).await?;
    let mut sidecar = bookshop::sidecar(navarch.xds, AdsProtocol::Delta).await?;
    gateway.wait_ready().await?;
    sidecar.wait_ready().await?;
    println!(
        "a gateway (http://{GATEWAY}, host shop.example.com) and a shopper's sidecar (http://{SIDECAR}) are connected\n"
    );

    routes_requests().await?;
    follows_an_edit(&shop, &navarch).await?;
    outlives_a_broken_file(&shop, &navarch).await?;

    for (name, envoy) in [("gateway", &gateway), ("sidecar", &sidecar)] {
        let rejected = envoy.stats().await?.rejected();
        ensure!(
            rejected == 0,
            "the {name} rejected {rejected} updates:\n{}",
            envoy.output()
        );
    }

    println!("neither Envoy rejected an update");
    if std::env::var_os("DEMO").is_some_and(|demo| demo == "once") {
        return Ok(());
    }

    println!(
        "\nthe demo keeps running; edit the files above. Debug pages: http://{}/debug",
        navarch.http
    );
    println!("    curl -H 'Host: shop.example.com' http://{GATEWAY}/reviews");
    println!("    curl -H 'Host: reviews' http://{SIDECAR}/");
    println!("Ctrl-C ends everything.");
    tokio::signal::ctrl_c().await?;

    navarch.stop().await?;
    Ok(())
}

/// VirtualServices route the requests.
async fn routes_requests() -> Result<()> {
    let pages = bookshop::ask(GATEWAY, "shop.example.com", "/", 4).await?;
    show("gateway /", &pages);
    ensure!(
        pages.get("storefront") == Some(&4),
        "the front page is the storefront's"
    );
    let catalog = bookshop::ask(GATEWAY, "shop.example.com", "/catalog/1", 20).await?;
    show("gateway /catalog", &catalog);

    ensure!(
        catalog.len() == 2 && catalog.values().sum::<usize>() == 20,
        "both catalogs answer"
    );
    let reviews = bookshop::ask(GATEWAY, "shop.example.com", "/reviews", 200).await?;
    show("gateway /reviews, 90/10", &reviews);
    let v1 = reviews.get("reviews v1").copied().unwrap_or_default();
    ensure!((150..200).contains(&v1), "nine of ten see reviews v1");

    let inside = bookshop::ask(SIDECAR, "reviews", "/", 200).await?;
    show("sidecar reviews, 90/10", &inside);
    let v1 = inside.get("reviews v1").copied().unwrap_or_default();
    ensure!((150..200).contains(&v1), "nine of ten see reviews v1");

    Ok(())
}

/// An edit of the VirtualService on disk is applied.
async fn follows_an_edit(shop: &Bookshop, navarch: &Navarch) -> Result<()> {
    println!("\nedit: all readers see reviews v2");
    let before = acknowledged(navarch).await?;
    let begun = Instant::now();
    let gateway = std::fs::read_to_string(shop.file("gateway.yaml"))?;
    let moved = gateway
        .replace("weight: 90", "weight: 0")
        .replace("weight: 10", "weight: 100");
    shop.write("gateway.yaml", &moved)?;

    while acknowledged(navarch).await? == before {
        ensure!(
            begun.elapsed() < TIMEOUT,
            "the gateway did not acknowledge new routes in {TIMEOUT:?}"
        );
    }

    println!(
        "  from the write to Envoy's ACK: {}",
        milliseconds(begun.elapsed())
    );
    let reviews = bookshop::ask(GATEWAY, "shop.example.com", "/reviews", 50).await?;
    show("gateway /reviews, 0/100", &reviews);
    ensure!(
        reviews.get("reviews v2") == Some(&50),
        "everyone sees reviews v2"
    );

    Ok(())
}

/// An invalid file is reported, and its last valid version stays in use.
async fn outlives_a_broken_file(shop: &Bookshop, navarch: &Navarch) -> Result<()> {
    println!("\nbreak gateway.yaml");
    let good = std::fs::read_to_string(shop.file("gateway.yaml"))?;
    shop.write(
        "gateway.yaml",
        &good.replace("      timeout: 2s", "      timeout: [soon"),
    )?;
    let begun = Instant::now();
    let problem = loop {
        let status: Value = serde_json::from_str(&navarch.page("/debug/push_status").await?)?;
        let problem = status
            .pointer("/rejected/0/problem")
            .and_then(Value::as_str)
            .map(str::to_owned);
        if let Some(problem) = problem {
            break problem;
        }
        ensure!(
            begun.elapsed() < TIMEOUT,
            "navarch does not report the broken file"
        );
    };

    println!("  navarch reports: {problem}");
    let reviews = bookshop::ask(GATEWAY, "shop.example.com", "/reviews", 20).await?;
    show("gateway /reviews", &reviews);
    ensure!(
        reviews.get("reviews v2") == Some(&20),
        "the last good version stays in force"
    );
    shop.write("gateway.yaml", &good)?;

    let begun = Instant::now();
    while serde_json::from_str::<Value>(&navarch.page("/debug/push_status").await?)?
        .pointer("/rejected/0")
        .is_some()
    {
        ensure!(
            begun.elapsed() < TIMEOUT,
            "navarch still reports the fixed file"
        );
    }

    println!("  fixed: no more errors\n");
    Ok(())
}

/// The nonce of the last routes that the gateway acknowledged.
async fn acknowledged(navarch: &Navarch) -> Result<Option<String>> {
    let all: Value = serde_json::from_str(&navarch.page("/debug/syncz").await?)?;
    let row = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|row| row.get("proxy").is_some_and(|proxy| proxy == GATEWAY_ID));
    Ok(row
        .and_then(|row| row.get("route_acked"))
        .and_then(Value::as_str)
        .map(str::to_owned))
}

/// Prints the numbers of answers by backend.
fn show(what: &str, answers: &BTreeMap<String, usize>) {
    let counts: Vec<String> = answers
        .iter()
        .map(|(who, count)| format!("{who}: {count}"))
        .collect();
    println!("  {what:<26} {}", counts.join(", "));
}

/// A duration in milliseconds with one decimal.
fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
