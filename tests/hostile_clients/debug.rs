//! Access to debug pages and to commands for the CA, and protection against requests from browsers
//! on behalf of other sites (CVE-2026-31838).

use anyhow::{Result, ensure};
use serde_json::json;

use crate::network::{self, client};
use crate::others::{page, send};
use crate::plane::{HTTP, MONITORING, Plane};

#[test]
fn the_ca_rejects_commands_of_workloads_and_pages_reject_other_sites() -> Result<()> {
    let test = "debug::the_ca_rejects_commands_of_workloads_and_pages_reject_other_sites";
    network::run(test, commands_and_sites)
}

async fn commands_and_sites() -> Result<()> {
    let plane = Plane::start().await?;

    // Workloads of the control plane's own namespace may read the page, as in istiod.
    let gateway = plane
        .issuer
        .token(json!({"sub": "system:serviceaccount:istio-system:ingressgateway"}));
    let bearer = format!("Bearer {gateway}");
    let token = ("authorization", bearer.as_str());
    let (status, _) = page(client(6, 1), HTTP, "/debug/ca", &[token]).await?;
    ensure!(status == 200, "operators see the state of the CA: {status}");

    for port in [HTTP, MONITORING] {
        for order in ["begin", "switch", "switch-regardless"] {
            let headers = [token, ("x-navarch-ca-command", order)];
            let (status, body) = send(client(6, 1), port, "POST", "/debug/ca", &headers).await?;
            ensure!(
                [403, 404, 405].contains(&status),
                "{port} {order}: {status} {body}"
            );
        }

        // From the same machine all pages are open, except for requests with another host name (DNS
        // rebinding).
        for (host, wanted) in [
            ("localhost", 200),
            ("127.0.0.1:8080", 200),
            ("[::1]:8080", 200),
            ("evil.example", 401),
            ("evil.example:8080", 401),
        ] {
            let (status, _) = page(
                [127, 0, 0, 1].into(),
                port,
                "/debug/syncz",
                &[("host", host)],
            )
            .await?;
            ensure!(status == wanted, "{port} {host}: {status}");
        }
    }

    let (_, state) = page(client(6, 1), HTTP, "/debug/ca", &[token]).await?;
    let state: serde_json::Value = serde_json::from_str(&state)?;
    ensure!(
        state["phase"] == "settled" || state["phase"].is_null(),
        "the CA's state is unchanged: {state}"
    );
    ensure!(plane.navarch.is_ready().await, "it is still ready");

    Ok(())
}

#[test]
fn cve_2026_31838_debug_pages_require_authentication_from_other_machines() -> Result<()> {
    network::run(
        "debug::cve_2026_31838_debug_pages_require_authentication_from_other_machines",
        pages,
    )
}

async fn pages() -> Result<()> {
    let plane = Plane::start().await?;
    let shop = plane.issuer.token(json!({}));
    let operator = plane
        .issuer
        .token(json!({"sub": "system:serviceaccount:istio-system:istiod"}));
    let pages = [
        "syncz",
        "adsz",
        "registryz",
        "configz",
        "push_status",
        "endpointz",
        "mesh",
        "connections",
        "list",
    ];

    let answers = [
        "applied?object=vs/a/b",
        "config_distribution",
        "doctor",
        "why/push?proxy=a.b",
        "why/not?proxy=a.b",
    ];

    let pages = pages.into_iter().chain(answers);
    for name in pages {
        for (address, token, wanted) in [
            (HTTP, None, &[401, 404][..]),
            (MONITORING, None, &[401, 404]),
            (HTTP, Some("nonsense"), &[401, 404]),
            (HTTP, Some(shop.as_str()), &[403, 404]),
            (HTTP, Some(operator.as_str()), &[200, 404]),
        ] {
            let bearer = token.map(|token| format!("Bearer {token}"));
            let headers: Vec<(&str, &str)> = bearer
                .iter()
                .map(|bearer| ("authorization", bearer.as_str()))
                .collect();
            let (status, body) =
                page(client(6, 1), address, &format!("/debug/{name}"), &headers).await?;
            ensure!(
                wanted.contains(&status),
                "{name} {address} {token:?}: {status} {body}"
            );
        }
    }

    // Plans are requested by POST, with the same rights. Forms of other sites cannot send a valid
    // request.
    for (token, wanted) in [
        (None, 401),
        (Some("nonsense"), 401),
        (Some(shop.as_str()), 403),
        (Some(operator.as_str()), 415),
    ] {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> = bearer
            .iter()
            .map(|bearer| ("authorization", bearer.as_str()))
            .collect();
        let (status, body) = send(client(6, 1), HTTP, "POST", "/debug/plan", &headers).await?;
        ensure!(status == wanted, "{token:?}: {status} {body}");
    }

    Ok(())
}
