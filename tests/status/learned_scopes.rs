//! What workloads have used is stored with the rights of the control plane, and a replica neither
//! overwrites what others have stored nor brings back what an operator has deleted.

use std::sync::Arc;
use std::time::Duration;

use navarch::api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch::api::names::{Hostname, Namespace, ServiceAccount};
use navarch::status::{KeptScope, LearnedScopeStore, StoreError};
use serde_json::{Value, json};

use crate::whole::start;
use crate::{Deployed, NAMESPACE};

/// A service that every cluster has: hosts without one would not be stored again anyway.
const HOST: &str = "kubernetes.default.svc.cluster.local";
/// Longer than replicas wait between two looks at what is stored.
const TWO_ROUNDS: Duration = Duration::from_secs(20);

fn scope(hosts: &[&str]) -> KeptScope {
    KeptScope {
        workload: LearnedWorkload {
            namespace: Namespace::new("default"),
            account: ServiceAccount::new("default"),
            name: Arc::from("learner"),
        },
        hosts: hosts.iter().map(Hostname::new).collect(),
        version: None,
    }
}

pub(crate) async fn learned_scopes_are_stored_and_stay_deleted(deployed: &Deployed) {
    let store = LearnedScopeStore::new(&deployed.as_navarch().await, NAMESPACE);
    let first = store.put(&scope(&[HOST])).await.unwrap();
    assert!(first.version.is_some());

    // Another replica has no version of it, or an old one.
    let error = store.put(&scope(&["b.example"])).await.unwrap_err();
    assert!(matches!(error, StoreError::Stale), "{error}");
    let second = KeptScope {
        hosts: LearnedHosts::from([Hostname::new(HOST), Hostname::new("b.example")]),
        ..first.clone()
    };
    let second = store.put(&second).await.unwrap();
    let error = store.put(&first).await.unwrap_err();
    assert!(matches!(error, StoreError::Stale), "{error}");
    let stored = store.list().await.unwrap();
    assert_eq!(stored.readable.get(&second.workload), Some(&second));

    // Somebody takes the label away: lists no longer have it, and it cannot be created again.
    let map = KeptScope::map_name(&second.workload);
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{map}");
    let unlabel = json!({ "metadata": { "labels": { "navarch.io/learned-scope": null } } });
    deployed
        .cluster
        .call("PATCH", &path, "application/merge-patch+json", &unlabel)
        .await
        .unwrap();
    let stored = store.list().await.unwrap();
    assert_eq!(stored.readable.get(&second.workload), None);
    let error = store.put(&scope(&["c.example"])).await.unwrap_err();
    assert!(matches!(error, StoreError::Stale), "{error}");
    let adopted = store.adopt(&scope(&["c.example"])).await.unwrap().unwrap();
    assert_eq!(
        adopted.hosts,
        scope(&[HOST, "b.example", "c.example"]).hosts
    );
    let stored = store.list().await.unwrap();
    assert_eq!(stored.readable.get(&adopted.workload), Some(&adopted));
    let again = store.adopt(&scope(&["d.example"])).await.unwrap();
    assert_eq!(again, None, "it has its label");

    // A replica has it in memory; once it is deleted, nobody writes it again.
    let replica = start(deployed, "learner").await;
    deployed
        .cluster
        .call("DELETE", &path, "application/json", &Value::Null)
        .await
        .unwrap();
    tokio::time::sleep(TWO_ROUNDS).await;
    assert_eq!(deployed.get(&path).await, Value::Null);
    assert!(replica.stop().await.unwrap(), "navarch exits on SIGTERM");
}
