//! A real API server reviews tokens and rights.
//!
//! Needs the programs of `scripts/kube`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use navarch::api::object::NamespacedName;
use navarch::pki::KeyType;
use navarch::security::api_server::ApiServer;
use navarch::security::authenticate::{Authenticator, Credentials, TokenReviews, TrustedNetworks};
use navarch::security::ca::keeper::{self, KeeperConfig, RotationCommand};
use navarch::security::ca::root_store::{self, RootStore};
use navarch::security::ca::rotation::{Missing, Phase, RotationRules};
use navarch::security::ca::{Bundle, PluggedIn};
use navarch::security::secret_access::AccessReviewer;
use navarch_testkit::cluster::Cluster;
use navarch_testkit::wait::until;
use serde_json::{Value, json};
use tonic::codegen::http::HeaderMap;

use crate::bare_mesh::Mesh;

/// Creates an object.
async fn create(cluster: &Cluster, path: &str, body: Value) -> Result<Value> {
    cluster
        .call("POST", path, "application/json", &body)
        .await
        .with_context(|| path.to_owned())
}

/// A token of service account `shop/web` for an audience.
async fn token(cluster: &Cluster, audience: &str) -> Result<String> {
    let body = json!({"spec": {"audiences": [audience], "expirationSeconds": 600}});
    let answer = create(
        cluster,
        "/api/v1/namespaces/shop/serviceaccounts/web/token",
        body,
    )
    .await?;
    Ok(answer["status"]["token"]
        .as_str()
        .context("a token")?
        .to_owned())
}

/// The identity of a token's bearer.
async fn admit(authenticator: &Authenticator, token: &str) -> Result<String, String> {
    let headers = HeaderMap::from_iter([(
        tonic::codegen::http::header::AUTHORIZATION,
        format!("Bearer {token}").parse().unwrap(),
    )]);
    let admitted = authenticator
        .admit(Credentials {
            peer: None,
            certificates: &[],
            headers: &headers,
        })
        .await;
    admitted
        .map(|caller| caller.identities[0].to_string())
        .map_err(|unknown| unknown.to_string())
}

#[tokio::test]
async fn the_api_server_reviews_tokens_and_secret_access_and_stores_the_root() -> Result<()> {
    let cluster = Cluster::start().await?;

    for namespace in ["shop", "istio-system"] {
        create(
            &cluster,
            "/api/v1/namespaces",
            json!({"metadata": {"name": namespace}}),
        )
        .await?;
    }

    let accounts = "/api/v1/namespaces/shop/serviceaccounts";
    create(&cluster, accounts, json!({"metadata": {"name": "web"}})).await?;
    let client = cluster.client().await?;

    let reviews = TokenReviews::new(
        Arc::new(ApiServer::new(client.clone())),
        vec!["istio-ca".into()],
    );
    let authenticator = Authenticator::new(
        Arc::new(Mesh),
        None,
        Some(reviews),
        TrustedNetworks::default(),
    );

    let good = token(&cluster, "istio-ca").await?;

    for _ in 0..2 {
        let found = admit(&authenticator, &good).await;
        ensure!(
            found == Ok("spiffe://cluster.local/ns/shop/sa/web".to_owned()),
            "{found:?}"
        );
    }

    let foreign = admit(&authenticator, &token(&cluster, "somebody-else").await?).await;
    ensure!(foreign.is_err(), "{foreign:?}");
    let forged = admit(&authenticator, &format!("{good}x")).await;
    ensure!(forged.is_err(), "{forged:?}");

    let access = ApiServer::new(client.clone());
    let account = NamespacedName::new("shop", "web");
    let may = access.may_list_secrets(&account).await;
    ensure!(
        matches!(may, Ok(false)),
        "the right is not granted: {may:?}"
    );
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop";
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]);
    create(
        &cluster,
        &format!("{rbac}/roles"),
        json!({"metadata": {"name": "gw"}, "rules": rules}),
    )
    .await?;
    let binding = json!({
        "metadata": {"name": "gw"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gw"},
        "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": "shop"}],
    });
    create(&cluster, &format!("{rbac}/rolebindings"), binding).await?;
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(10);

    while !matches!(access.may_list_secrets(&account).await, Ok(true)) {
        ensure!(
            tokio::time::Instant::now() < end,
            "the right is granted, but denied"
        );
    }

    one_root_for_two_replicas(client).await
}

#[tokio::test]
async fn the_token_of_a_pod_cannot_be_replayed_once_the_pod_is_deleted() -> Result<()> {
    let cluster = Cluster::start().await?;
    let pods = "/api/v1/namespaces/shop/pods";
    let namespace = json!({"metadata": {"name": "shop"}});
    create(&cluster, "/api/v1/namespaces", namespace).await?;
    let accounts = "/api/v1/namespaces/shop/serviceaccounts";
    create(&cluster, accounts, json!({"metadata": {"name": "web"}})).await?;
    let spec = json!({
        "serviceAccountName": "web",
        "containers": [{"name": "app", "image": "app"}],
    });
    let pod = json!({"metadata": {"name": "web-1"}, "spec": spec});
    create(&cluster, pods, pod).await?;

    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "web-1"});
    let request = json!({"spec": {"audiences": ["istio-ca"], "boundObjectRef": bound}});
    let made = create(&cluster, &format!("{accounts}/web/token"), request).await?;
    let token = made["status"]["token"].as_str().context("a token")?;

    // One that has no review in its cache, as after its 60 s, or another replica.
    let client = cluster.client().await?;
    let authenticator = || {
        let api_server = Arc::new(ApiServer::new(client.clone()));
        let reviews = TokenReviews::new(api_server, vec!["istio-ca".into()]);
        Authenticator::new(
            Arc::new(Mesh),
            None,
            Some(reviews),
            TrustedNetworks::default(),
        )
    };
    let admitted = admit(&authenticator(), token).await;
    ensure!(admitted.is_ok(), "{admitted:?}");

    let at_once = json!({"gracePeriodSeconds": 0});
    let path = format!("{pods}/web-1");
    cluster
        .call("DELETE", &path, "application/json", &at_once)
        .await?;
    until("the token is rejected", async || {
        admit(&authenticator(), token).await.is_err()
    })
    .await;
    Ok(())
}

/// Two replicas that start at once share one root, and one of them rotates it for both.
async fn one_root_for_two_replicas(client: kube::Client) -> Result<()> {
    let secrets = kube::Api::namespaced(client, "istio-system");
    let folder = tempfile::tempdir()?;
    let config = |replica: &str| KeeperConfig {
        rules: RotationRules {
            overlap: Duration::ZERO,
            longest: Duration::from_secs(3600),
            renewed_at: None,
        },
        plugged_in: PluggedIn {
            folder: folder.path().to_owned(),
            secrets: None,
        },
        self_signed: RootStore::Secret(Box::new(secrets.clone()), root_store::SELF_SIGNED),
        rotation: RootStore::Secret(Box::new(secrets.clone()), root_store::PLUGGED_IN),
        distributed: None,
        make: Arc::new(|now| {
            Bundle::self_signed(
                "cluster.local",
                KeyType::P256,
                Duration::from_secs(36_000),
                now,
            )
        }),
        check: Duration::from_secs(3600),
        look: Duration::from_millis(100),
        replica: replica.to_owned(),
        clock: std::time::SystemTime::now,
    };

    let (one, other) = tokio::join!(keeper::start(config("one")), keeper::start(config("other")));
    let (one, ours, commands) = one?;
    let (other, theirs, _) = other?;
    ensure!(
        ours.get().roots() == theirs.get().roots(),
        "one root is stored"
    );
    let old = ours.get().roots().pem().to_owned();

    let mut tasks = tokio::task::JoinSet::new();
    let absent = Arc::new(std::sync::Mutex::new(vec![Missing {
        who: "web-1.shop".into(),
        why: "late".into(),
    }]));
    let there = absent.clone();
    tasks.spawn(one.run(Arc::new(|_| Vec::new())));
    tasks.spawn(other.run(Arc::new(move |_| there.lock().unwrap().clone())));

    // When two replicas start at once, one's first report may overwrite the other's; the next check
    // writes it again.
    let has_reported = async || {
        let secret = secrets.get(root_store::SELF_SIGNED).await;
        secret.is_ok_and(|secret| {
            secret
                .annotations()
                .keys()
                .any(|name| name.ends_with("/other"))
        })
    };

    until("both replicas have reported", has_reported).await;
    commands.send(RotationCommand::Begin).await?;
    let end = tokio::time::Instant::now() + Duration::from_secs(20);

    let is_missed = |missing: &Missing| missing.who == "web-1.shop";
    while !commands.status().missing.iter().any(is_missed) {
        ensure!(
            tokio::time::Instant::now() < end,
            "the other replica's proxies count: {:?}",
            commands.status()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    ensure!(
        theirs.get().root_certificates().len() == 2,
        "the other replica trusts both roots"
    );

    // Without an overlap, only the report of the other replica is awaited.
    ensure!(
        ours.get().roots().pem().starts_with(&old),
        "the old root signs while a report is missing"
    );
    absent.lock().unwrap().clear();
    let end = tokio::time::Instant::now() + Duration::from_secs(60);

    while commands.status().phase != Phase::Retiring {
        ensure!(
            tokio::time::Instant::now() < end,
            "the other replica's report completes the step: {:?}",
            commands.status()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let new = ours.get().roots().pem().to_owned();
    ensure!(
        new != old && ours.get().root_certificates().len() == 2,
        "both roots are trusted"
    );
    let end = tokio::time::Instant::now() + Duration::from_secs(20);

    while theirs.get().roots().pem() != new {
        ensure!(
            tokio::time::Instant::now() < end,
            "the other replica follows"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    Ok(())
}
