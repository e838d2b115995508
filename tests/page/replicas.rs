//! The dashboard of several replicas: `navarch dashboard` lists the proxies of all.

use std::net::SocketAddr;

use navarch_testkit::client::get;
use navarch_testkit::navarch::Navarch;
use navarch_testkit::process::Process;
use navarch_testkit::wait::until;
use serde_json::Value;
use tempfile::TempDir;

use crate::browser::{browser, drive_at};
use crate::proxy::{Reaction, Sidecar, connect};
use crate::start;

/// Two control planes with a sidecar each, and a dashboard of both.
struct Replicas {
    folder: TempDir,
    replicas: [Navarch; 2],
    _sidecars: [Sidecar; 2],
    dashboard: Process,
    own: SocketAddr,
    _other: TempDir,
}

impl Replicas {
    async fn start() -> Self {
        let (folder, first) = start().await;
        let (other, second) = start().await;
        let sidecar = async |navarch: &Navarch, pod, ip| {
            connect(
                navarch.xds,
                pod,
                "bookshop",
                ip,
                &[("app", "web")],
                Reaction::Accept,
            )
            .await
        };

        let sidecars = [
            sidecar(&first, "web-0", "10.7.0.1").await,
            sidecar(&second, "web-1", "10.7.0.2").await,
        ];
        let (dashboard, own) = crate::dashboard(&[&first, &second], folder.path()).await;
        let replicas = [first, second];
        let all = Self {
            folder,
            replicas,
            _sidecars: sidecars,
            dashboard,
            own,
            _other: other,
        };

        until("both have taken what they were sent", async || {
            let listed = all.get_json("/debug/view/proxies").await;
            listed["counts"]["synced"] == 2
        })
        .await;

        all
    }

    /// A page of the dashboard as JSON.
    async fn get_json(&self, path: &str) -> Value {
        let reply = get(self.own, "localhost", path, &[]).await.unwrap();
        serde_json::from_str(&reply.body)
            .unwrap_or_else(|_| panic!("{path}: {} {}", reply.status, reply.body))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxies_of_all_replicas_are_one_list() {
    let Replicas {
        folder: _folder,
        replicas: [first, second],
        _sidecars,
        dashboard: _dashboard,
        own,
        _other,
    } = Replicas::start().await;

    let get_json = async |path: &str| {
        let reply = get(own, "localhost", path, &[]).await.unwrap();
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        serde_json::from_str::<Value>(&reply.body).unwrap()
    };
    let here = first.monitoring.to_string();
    let there = second.monitoring.to_string();
    let both = [
        ("web-0.bookshop".to_owned(), here.clone()),
        ("web-1.bookshop".to_owned(), there.clone()),
    ];

    let listed = get_json("/debug/view/proxies").await;
    assert_eq!(rows(&listed), both, "{listed}");
    assert_eq!(
        (
            &listed["total"],
            &listed["counts"]["all"],
            &listed["kinds"]["sidecar"]
        ),
        (&2.into(), &2.into(), &2.into())
    );

    // Filters, states and sort order apply to the proxies of all replicas.
    assert_eq!(
        rows(&get_json("/debug/view/proxies?filter=web-1").await),
        both[1..]
    );
    assert_eq!(
        rows(&get_json("/debug/view/proxies?offset=1&limit=1").await),
        both[1..]
    );

    assert_eq!(
        rows(&get_json("/debug/view/proxies?state=refused").await),
        []
    );

    // A request about one proxy goes to the replica to which it is connected.
    for pod in ["web-0.bookshop", "web-1.bookshop"] {
        let why = get_json(&format!("/debug/why/push?proxy={pod}")).await;
        assert!(
            why["proxy"]
                .as_str()
                .is_some_and(|name| name.starts_with(pod)),
            "{why}"
        );
    }

    assert_eq!(
        get(own, "localhost", "/debug/why/push?proxy=no.body", &[])
            .await
            .unwrap()
            .status,
        404
    );

    // A replica that does not respond is named, and the proxies of the others are listed.
    second.stop().await.unwrap();
    let listed = get_json("/debug/view/proxies").await;
    assert_eq!(rows(&listed), both[..1], "{listed}");
    assert_eq!(
        listed["replicas"][0],
        serde_json::json!({ "name": here, "proxies": 1 })
    );

    assert!(
        listed["replicas"][1]["name"] == there && listed["replicas"][1]["error"].is_string(),
        "{listed}"
    );
    first.stop().await.unwrap();
    assert_eq!(
        get(own, "localhost", "/debug/view/proxies", &[])
            .await
            .unwrap()
            .status,
        502
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_the_proxies_of_all_replicas() {
    let Some(packages) = browser() else { return };
    let all = Replicas::start().await;
    drive_at(
        "replicas.js",
        &packages,
        all.folder.path(),
        all.own,
        &|| all.dashboard.output(),
    )
    .await;
    for replica in all.replicas {
        replica.stop().await.unwrap();
    }
}

/// The proxies of a list, each with its replica.
fn rows(listed: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = listed["rows"].as_array().unwrap().iter();
    rows.map(|row| (text(&row["proxy"]), text(&row["replica"])))
        .collect()
}
