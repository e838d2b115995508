//! Access to the dashboard, and its HTTP headers.

use navarch_testkit::client::{get, post};

use crate::{dashboard, start};

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_requires_debug_access_and_loads_no_external_resources() {
    let (_folder, navarch) = start().await;
    let page = get(navarch.monitoring, "localhost", "/", &[])
        .await
        .unwrap();
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(
        page.body.contains("<title>Navarch</title>"),
        "{}",
        page.body
    );

    let header = |name: &str| page.headers.get(name).unwrap().to_str().unwrap().to_owned();
    let policy = header("content-security-policy");
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(
        (header("x-content-type-options"), header("cache-control")),
        ("nosniff".to_owned(), "no-cache".to_owned())
    );

    let tag = header("etag");
    let again = get(
        navarch.monitoring,
        "localhost",
        "/",
        &[("if-none-match", &tag)],
    )
    .await
    .unwrap();
    assert_eq!((again.status.as_u16(), again.body.as_str()), (304, ""));

    // Under another host name, which a malicious page could have, all parts of the dashboard
    // require a token.
    for path in [
        "/",
        "/assets/page.js",
        "/debug/view/mesh",
        "/debug/view/proxies",
    ] {
        assert_eq!(
            get(navarch.monitoring, "rebound.example", path, &[])
                .await
                .unwrap()
                .status,
            401,
            "{path}"
        );
        let of_another = get(
            navarch.monitoring,
            "localhost",
            path,
            &[("sec-fetch-site", "cross-site")],
        )
        .await
        .unwrap();
        assert_eq!(of_another.status, 401, "{path}");
        assert_eq!(
            get(navarch.monitoring, "localhost", path, &[])
                .await
                .unwrap()
                .status,
            200,
            "{path}"
        );
    }

    // Exactly these files exist, and the health port serves none.
    for path in [
        "/assets/",
        "/assets/..%2f..%2fetc/passwd",
        "/assets/page.js.map",
        "/index.html",
    ] {
        assert_eq!(
            get(navarch.monitoring, "localhost", path, &[])
                .await
                .unwrap()
                .status,
            404,
            "{path}"
        );
    }

    assert_eq!(
        get(navarch.http, "localhost", "/", &[])
            .await
            .unwrap()
            .status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_for_the_page_have_a_limited_number_of_rows() {
    let (folder, navarch) = start().await;
    let many: String = (0..450)
        .map(|n| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: s{n}, namespace: many}}\nspec: {{clusterIP: None, ports: [{{port: 80, name: http}}]}}\n---\n"
            )
        })
        .collect();

    std::fs::write(folder.path().join("mesh/many.yaml"), many).unwrap();
    let monitoring = navarch.monitoring;
    let get_json = |path: &'static str| async move {
        let reply = get(monitoring, "localhost", path, &[]).await.unwrap();
        serde_json::from_str::<serde_json::Value>(&reply.body)
            .unwrap_or_else(|_| panic!("{path}: {}", reply.body))
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);

    let all = loop {
        let all = get_json("/debug/view/mesh?namespace=many&limit=100000").await;
        if all["total"] == 450 {
            break all;
        }
        assert!(std::time::Instant::now() < end, "{all}");
    };

    assert_eq!(all["rows"].as_array().unwrap().len(), 200);
    let last = get_json("/debug/view/mesh?namespace=many&offset=440").await;
    assert_eq!(last["rows"].as_array().unwrap().len(), 10);
    let filtered = get_json("/debug/view/mesh?namespace=many&filter=s44").await;
    assert_eq!(filtered["total"], 11, "{filtered}");
    let mesh = get_json("/debug/view/mesh").await;
    let of = |name: &str| {
        let all = mesh["namespaces"].as_array().unwrap();
        all.iter()
            .find(|one| one["name"] == name)
            .unwrap_or_else(|| panic!("{name} in {mesh}"))
            .clone()
    };

    assert_eq!(
        (&of("many")["services"], &of("many")["open"]),
        (&450.into(), &450.into())
    );
    assert_eq!(of("billing")["mtls"]["strict"], 1, "{mesh}");

    // A filter keeps the edges from and to the found services.
    let one = get_json("/debug/view/mesh?filter=billing").await;
    let arrows = one["arrows"].as_array().unwrap();
    assert!(
        one["namespaces"].as_array().unwrap().len() == 1 && !arrows.is_empty(),
        "{one}"
    );
    assert!(
        arrows
            .iter()
            .all(|arrow| arrow["from"] == "billing" || arrow["to"] == "billing"),
        "{one}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_forwards_only_reads_with_its_token() {
    let (_folder, navarch) = start().await;
    let logs = tempfile::tempdir().unwrap();
    let (dashboard, own) = dashboard(&[&navarch], logs.path()).await;
    let output = dashboard.output();
    assert!(
        output.contains(&format!(
            "http://{own}/ shows the mesh of {}",
            navarch.monitoring
        )),
        "{output}"
    );

    let page = get(own, "localhost", "/", &[]).await.unwrap();
    assert!(
        page.status == 200 && page.headers.contains_key("content-security-policy"),
        "{page:?}"
    );
    let tag = page.headers["etag"].to_str().unwrap();
    assert_eq!(
        get(own, "localhost", "/", &[("if-none-match", tag)])
            .await
            .unwrap()
            .status,
        304
    );

    assert_eq!(
        get(own, "localhost", "/debug/view/proxies", &[])
            .await
            .unwrap()
            .status,
        200
    );

    let proposal = r#"{"files":[],"remove":["vs/bookshop/reviews"]}"#.to_owned();
    let plan = post(own, "localhost", "/debug/plan", proposal)
        .await
        .unwrap();
    assert!(
        plan.status == 200 && plan.body.contains("removed"),
        "{plan:?}"
    );

    assert_eq!(
        post(own, "localhost", "/debug/ca", String::new())
            .await
            .unwrap()
            .status,
        405
    );

    assert_eq!(
        get(own, "localhost", "/metrics", &[]).await.unwrap().status,
        404
    );
    assert_eq!(
        get(own, "rebound.example", "/", &[]).await.unwrap().status,
        403
    );

    assert_eq!(
        get(own, "localhost", "/", &[("sec-fetch-site", "cross-site")])
            .await
            .unwrap()
            .status,
        403
    );

    navarch.stop().await.unwrap();
    assert_eq!(
        get(own, "localhost", "/debug/view/proxies", &[])
            .await
            .unwrap()
            .status,
        502
    );
}
