//! Requests through a gateway and a sidecar on the bookshop.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::bookshop::{self, Bookshop, GATEWAY, SIDECAR, answered};
use navarch_testkit::client;
use navarch_testkit::envoy::AdsProtocol;
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::requests::Requests;
use tokio::time::Instant;

use super::ONE_AT_A_TIME;

/// The program under test.
fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_navarch"))
}

/// The sample mesh under Navarch.
async fn open() -> Result<(Bookshop, Navarch)> {
    let shop = Bookshop::open(Path::new(env!("CARGO_MANIFEST_DIR"))).await?;
    // Some tests restart it at the same addresses: no other program may get its ports meanwhile.
    let at = Addresses::free()?;
    let navarch = Navarch::start_at(program(), shop.folder(), &shop.flags(), &[], at).await?;
    Ok((shop, navarch))
}

#[tokio::test]
async fn requests_follow_the_files_in_both_protocols_and_forms_of_routes() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;

    for protocol in [
        AdsProtocol::Delta,
        AdsProtocol::FineGrained,
        AdsProtocol::StateOfTheWorld,
    ] {
        let (shop, navarch) = open().await?;
        let mut gateway = bookshop::gateway(navarch.xds, protocol).await?;
        let mut sidecar = bookshop::sidecar(navarch.xds, protocol).await?;
        gateway.wait_ready().await?;
        sidecar.wait_ready().await?;
        answered("pages", "shop.example.com", "/", "storefront").await;
        let reviews = bookshop::ask(GATEWAY, "shop.example.com", "/reviews", 100).await?;
        let v1 = reviews.get("reviews v1").copied().unwrap_or_default();
        ensure!((75..100).contains(&v1), "90/10 at the gateway: {reviews:?}");
        let reviews = bookshop::ask(SIDECAR, "reviews", "/", 100).await?;
        let v1 = reviews.get("reviews v1").copied().unwrap_or_default();
        ensure!((75..100).contains(&v1), "90/10 at the sidecar: {reviews:?}");
        let seen = client::get(GATEWAY, "shop.example.com", "/catalog/books", &[]).await?;
        ensure!(
            seen.headers
                .get("x-seen-path")
                .is_some_and(|path| path == "/" || path == "//books"),
            "rewritten: {seen:?}"
        );
        ensure!(
            client::get(GATEWAY, "other.example.com", "/", &[])
                .await?
                .status
                == 404,
            "no such host"
        );
        // Edit: all requests to v2, at the gateway and in the mesh.
        shop.edit("gateway.yaml", "weight: 90", "weight: 0")?;
        shop.edit("gateway.yaml", "weight: 10", "weight: 100")?;
        answered("edited split", "shop.example.com", "/reviews", "reviews v2").await;
        shop.edit("reviews-routing.yaml", "weight: 90", "weight: 100")?;
        shop.edit("reviews-routing.yaml", "weight: 10\n", "weight: 0\n")?;
        answered("edited split inside", "reviews", "/", "reviews v1").await;
        // Create a fault for one path; delete the file again.
        let fault = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata:\n  name: storefront-2\n  namespace: bookshop\n\
                     spec:\n  hosts: [teapot.example.com]\n  gateways: [bookshop]\n  http:\n  - directResponse:\n      status: 418\n";
        shop.write("teapot.yaml", fault)?;
        shop.edit(
            "gateway.yaml",
            "        - shop.example.com\n---",
            "        - shop.example.com\n        - teapot.example.com\n---",
        )?;
        let end = Instant::now() + Duration::from_secs(10);
        while client::get(GATEWAY, "teapot.example.com", "/", &[])
            .await?
            .status
            != 418
        {
            ensure!(
                Instant::now() < end,
                "the added VirtualService takes effect"
            );
        }
        std::fs::remove_file(shop.file("teapot.yaml"))?;
        while client::get(GATEWAY, "teapot.example.com", "/", &[])
            .await?
            .status
            != 404
        {
            ensure!(
                Instant::now() < end,
                "the deleted VirtualService has no effect"
            );
        }
        gateway.ensure_no_update_rejected().await?;
        sidecar.ensure_no_update_rejected().await?;
        is_counted(&navarch.metrics().await?)?;
        ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    }

    Ok(())
}

/// Metrics with istiod's names count edits and objects.
fn is_counted(metrics: &str) -> Result<()> {
    let value = |name: &str| {
        let found = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.and_then(|value| value.parse::<f64>().ok())
    };

    for name in [
        "pilot_inbound_updates{type=\"config\"}",
        "pilot_push_triggers{type=\"config\"}",
        "pilot_debounce_time_count",
        "pilot_pushcontext_init_seconds_count",
        "pilot_proxy_queue_time_count",
        "pilot_proxy_convergence_time_count",
        "pilot_xds_pushes{type=\"rds\"}",
        "pilot_services",
        "pilot_virt_services",
    ] {
        ensure!(
            value(name).is_some_and(|value| value > 0.0),
            "{name}: {:?} in\n{metrics}",
            value(name)
        );
    }

    for name in [
        "pilot_endpoint_not_ready",
        "pilot_vservice_dup_domain",
        "pilot_destrule_subsets",
        "pilot_dns_cluster_without_endpoints",
        "pilot_conflict_inbound_listener",
        "pilot_total_xds_internal_errors",
    ] {
        ensure!(
            value(name) == Some(0.0),
            "{name}: {:?} in\n{metrics}",
            value(name)
        );
    }

    ensure!(
        !metrics.contains("pilot_total_xds_rejects{"),
        "no update was rejected:\n{metrics}"
    );

    Ok(())
}

#[tokio::test]
async fn after_two_hundred_edits_in_a_burst_the_last_one_is_in_force() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (shop, navarch) = open().await?;
    let mut gateway = bookshop::gateway(navarch.xds, AdsProtocol::Delta).await?;
    gateway.wait_ready().await?;
    answered("pages", "shop.example.com", "/", "storefront").await;
    let text = std::fs::read_to_string(shop.file("gateway.yaml"))?;

    for number in 0..200_u32 {
        let v2 = if number == 199 { 100 } else { number % 101 };
        let edited = text
            .replace("weight: 90", &format!("weight: {}", 100 - v2))
            .replace("weight: 10\n", &format!("weight: {v2}\n"));
        shop.write("gateway.yaml", &edited)?;
    }

    answered(
        "the last of 200 edits",
        "shop.example.com",
        "/reviews",
        "reviews v2",
    )
    .await;
    gateway.ensure_no_update_rejected().await?;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[tokio::test]
async fn restarts_and_a_broken_file_lose_no_traffic() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (shop, navarch) = open().await?;
    let mut gateway = bookshop::gateway(navarch.xds, AdsProtocol::FineGrained).await?;
    gateway.wait_ready().await?;
    answered("pages", "shop.example.com", "/", "storefront").await;

    // An invalid file: the last valid version stays in force, and navarch reports file and line.
    let good = std::fs::read_to_string(shop.file("gateway.yaml"))?;
    shop.write(
        "gateway.yaml",
        &good.replace("timeout: 2s", "timeout: [soon"),
    )?;
    let end = Instant::now() + Duration::from_secs(10);

    while !navarch
        .page("/debug/push_status")
        .await?
        .contains("gateway.yaml:")
    {
        ensure!(Instant::now() < end, "navarch reports the invalid file");
    }
    answered("broken file", "shop.example.com", "/", "storefront").await;
    shop.write(
        "gateway.yaml",
        &good.replace("host: storefront", "host: catalog"),
    )?;

    let end = Instant::now() + Duration::from_secs(10);

    loop {
        let answers = bookshop::ask(GATEWAY, "shop.example.com", "/", 10).await?;
        if answers.keys().all(|who| who.starts_with("catalog")) {
            break;
        }
        ensure!(
            Instant::now() < end,
            "the corrected file takes effect: {answers:?}"
        );
    }

    shop.write("gateway.yaml", &good)?;
    answered("back again", "shop.example.com", "/", "storefront").await;

    // Navarch is stopped: Envoy keeps serving. Navarch restarts: edits take effect again.
    let addresses = navarch.addresses();
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    answered("without navarch", "shop.example.com", "/", "storefront").await;
    let navarch =
        Navarch::start_at(program(), shop.folder(), &shop.flags(), &[], addresses).await?;
    shop.edit("gateway.yaml", "weight: 90", "weight: 0")?;
    shop.edit("gateway.yaml", "weight: 10", "weight: 100")?;

    answered(
        "after navarch's restart",
        "shop.example.com",
        "/reviews",
        "reviews v2",
    )
    .await;

    // Envoy is restarted.
    drop(gateway);
    let mut gateway = bookshop::gateway(navarch.xds, AdsProtocol::Delta).await?;
    gateway.wait_ready().await?;
    answered(
        "after Envoy's restart",
        "shop.example.com",
        "/reviews",
        "reviews v2",
    )
    .await;
    gateway.ensure_no_update_rejected().await?;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[tokio::test]
async fn routes_change_their_form_in_place_and_requests_are_served_on() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (shop, mut navarch) = open().await?;
    let mut gateway = bookshop::gateway(navarch.xds, AdsProtocol::Delta).await?;
    let mut sidecar = bookshop::sidecar(navarch.xds, AdsProtocol::Delta).await?;
    gateway.wait_ready().await?;
    sidecar.wait_ready().await?;
    answered("pages", "shop.example.com", "/", "storefront").await;
    let addresses = navarch.addresses();

    let text = std::fs::read_to_string(shop.file("gateway.yaml"))?;
    let inside = std::fs::read_to_string(shop.file("reviews-routing.yaml"))?;

    for (round, form) in ["true", "false", "true"].into_iter().enumerate() {
        // Back to whole tables one response has all, and no request fails. In the other direction
        // Envoy has none of the hosts for a moment.
        let requests = (form == "false").then(|| Requests::begin(GATEWAY, "shop.example.com", "/"));
        ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
        let environment = [("NAVARCH_FINE_GRAINED_ROUTES", form)];
        navarch = Navarch::start_at(
            program(),
            shop.folder(),
            &shop.flags(),
            &environment,
            addresses,
        )
        .await?;
        let (v1, v2) = if round % 2 == 0 {
            ("0", "100")
        } else {
            ("100", "0")
        };

        let split = |text: &str| {
            let text = text.replace("weight: 90", &format!("weight: {v1}"));
            text.replace("weight: 10\n", &format!("weight: {v2}\n"))
        };
        shop.write("gateway.yaml", &split(&text))?;
        shop.write("reviews-routing.yaml", &split(&inside))?;
        let wanted = if round % 2 == 0 {
            "reviews v2"
        } else {
            "reviews v1"
        };

        for (host, path) in [("shop.example.com", "/reviews"), ("reviews", "/")] {
            answered(
                &format!("in form {form} after a restart"),
                host,
                path,
                wanted,
            )
            .await;
        }

        if let Some(requests) = requests {
            requests.end().await?;
        }

        let dump = gateway.config_dump().await?.to_string();
        ensure!(
            dump.contains("vhds") == (form == "true"),
            "the gateway has the form {form}"
        );
        ensure!(
            client::get(GATEWAY, "other.example.com", "/", &[])
                .await?
                .status
                == 404,
            "no such host"
        );

        gateway.ensure_no_update_rejected().await?;
        sidecar.ensure_no_update_rejected().await?;
    }

    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}
