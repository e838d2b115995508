//! Commands about changes with a running control plane.

use std::path::Path;
use std::time::{Duration, Instant};

use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::wait::until;
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::proxy::{self, Reaction, Sidecar, connect};
use crate::{bookshop, command_output, edited, json};

/// The command for the state of the reviews' VirtualService.
const APPLIED: [&str; 5] = ["applied", "vs", "reviews", "-n", "bookshop"];

/// A control plane on a copy of the sample mesh.
pub(crate) async fn start() -> (TempDir, Navarch) {
    let folder = bookshop();
    let flags = ["--registries=".to_owned()];
    let navarch = Navarch::start(
        Path::new(env!("CARGO_BIN_EXE_navarch")),
        folder.path(),
        &flags,
    )
    .await
    .unwrap();
    (folder, navarch)
}

/// The same with authentication and the pods of so many sidecars.
pub(crate) async fn start_with_identities(count: usize) -> (TempDir, Navarch) {
    let folder = bookshop();
    let pods: String = (0..count)
        .map(|n| proxy::pod(&format!("web-{n}"), "bookshop", &ip_of(n)))
        .collect();
    std::fs::write(folder.path().join("sidecars.yaml"), pods).unwrap();
    let variables = proxy::identities();
    let variables = variables.each_ref().map(|(name, value)| (*name, &**value));
    let flags = ["--registries=".to_owned()];
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let navarch = Navarch::start_at(program, folder.path(), &flags, &variables, Addresses::ANY)
        .await
        .unwrap();
    (folder, navarch)
}

/// The address of a sidecar.
fn ip_of(n: usize) -> String {
    format!("10.7.{}.{}", n / 250, n % 250 + 1)
}

/// Runs a command against the control plane.
pub(crate) async fn run_command(navarch: &Navarch, arguments: &[&str]) -> (serde_json::Value, i32) {
    let mut all: Vec<String> = arguments
        .iter()
        .map(|argument| (*argument).to_owned())
        .collect();
    all.extend(["--address".to_owned(), navarch.monitoring.to_string()]);
    spawn_blocking(move || json(&all.iter().map(String::as_str).collect::<Vec<_>>()))
        .await
        .unwrap()
}

/// Repeats a command until its output and exit code are as wanted, and returns the output.
async fn run_command_until(
    navarch: &Navarch,
    arguments: &[&str],
    is_wanted: impl Fn(&serde_json::Value, i32) -> bool,
) -> serde_json::Value {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (output, code) = run_command(navarch, arguments).await;
        if is_wanted(&output, code) {
            return output;
        }
        assert!(
            Instant::now() < end,
            "{arguments:?}: {output}\n{}",
            navarch.output()
        );
    }
}

/// Waits until so many proxies have acknowledged an object.
async fn acknowledged_by(navarch: &Navarch, count: u64) -> serde_json::Value {
    let applied = run_command_until(navarch, &APPLIED, |output, _| {
        output["replicas"][0]["applied"]["taken"] == count
    })
    .await;
    applied["replicas"][0]["applied"].clone()
}

/// Sidecars of the sample mesh.
pub(crate) async fn sidecars(navarch: &Navarch, reactions: &[Reaction]) -> Vec<Sidecar> {
    let mut all = Vec::new();
    for (n, reaction) in reactions.iter().enumerate() {
        let pod = format!("web-{n}");
        let ip = ip_of(n);
        all.push(
            connect(
                navarch.xds,
                &pod,
                "bookshop",
                &ip,
                &[("app", "web")],
                *reaction,
            )
            .await,
        );
    }
    all
}

/// Waits until each sidecar has its routes. Before that, a sidecar counts as up to date although it
/// lacks the VirtualService; and NACKs of a sidecar that never accepted a response are not charged
/// to objects.
async fn have_routes(sidecars: &[Sidecar]) {
    until("each has its routes", async || {
        sidecars.iter().all(|sidecar| sidecar.routes_by("|v2|"))
    })
    .await;
}

/// Changes the weights of the reviews' routes.
pub(crate) fn edit(folder: &TempDir, weight: u32) {
    let text = edited(
        "reviews-routing.yaml",
        &[("weight: 90", &format!("weight: {weight}"))],
    );
    std::fs::write(folder.path().join("reviews-routing.yaml"), text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn applied_reports_exactly_which_proxies_acknowledged() {
    let (folder, navarch) = start().await;
    let mut reactions = vec![Reaction::Accept; 5];
    reactions.push(Reaction::Ignore);
    let sidecars = sidecars(&navarch, &reactions).await;

    // A sidecar that ignores later responses accepts its first one, so the edit must come after it.
    have_routes(&sidecars).await;
    acknowledged_by(&navarch, 6).await;
    edit(&folder, 70);

    let applied = acknowledged_by(&navarch, 5).await;
    assert_eq!(
        (
            &applied["reached"],
            &applied["pending"],
            &applied["refused"]
        ),
        (&6.into(), &1.into(), &0.into()),
        "{applied}"
    );

    assert_eq!(applied["pendingProxies"][0]["proxy"], "web-5.bookshop");
    assert_eq!(
        applied["pendingProxies"][0]["types"],
        serde_json::json!(["rds"])
    );
    assert!(
        applied["pendingProxies"][0]["sinceSeconds"]
            .as_f64()
            .is_some(),
        "{applied}"
    );

    let (_, code) = run_command(&navarch, &["applied", "vs", "reviews", "-n", "bookshop"]).await;
    assert_eq!(code, 3);
    let waits = [
        "applied",
        "vs",
        "reviews",
        "-n",
        "bookshop",
        "--wait",
        "--timeout",
        "1s",
    ];

    assert_eq!(run_command(&navarch, &waits).await.1, 3);
    assert_eq!(
        run_command(&navarch, &["applied", "vs", "nobody", "-n", "bookshop"])
            .await
            .1,
        5
    );

    // Another change that the proxy did not acknowledge must not count for this object.
    let (rule, code) = run_command(
        &navarch,
        &["applied", "serviceentry", "bank", "-n", "bookshop"],
    )
    .await;
    assert_eq!(
        (code, &rule["replicas"][0]["applied"]["pending"]),
        (0, &0.into()),
        "{rule}"
    );

    // A replica that does not respond is reported.
    let dead = [
        "applied",
        "vs",
        "reviews",
        "-n",
        "bookshop",
        "--address",
        "127.0.0.1:1",
    ];

    let (all, code) = run_command(&navarch, &dead).await;
    assert_eq!(
        (code, all["replicas"].as_array().unwrap().len()),
        (1, 2),
        "{all}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_plan_covers_connected_proxies_and_changes_nothing() {
    let (folder, navarch) = start().await;
    let _sidecars = sidecars(&navarch, &[Reaction::Accept; 3]).await;
    acknowledged_by(&navarch, 3).await;
    let change = folder.path().join("change.txt");
    std::fs::write(
        &change,
        edited("reviews-routing.yaml", &[("weight: 90", "weight: 0")]),
    )
    .unwrap();
    let (plan, code) = run_command(&navarch, &["plan", "-f", change.to_str().unwrap()]).await;
    assert_eq!(
        (code, &plan["proxies"], &plan["reached"]),
        (0, &3.into(), &3.into()),
        "{plan}"
    );
    assert_eq!(plan["traffic"][0]["after"], "v2 100 %", "{plan}");

    let pushes = navarch.page("/debug/push_status").await.unwrap();
    let (again, _) = run_command(&navarch, &["plan", "-f", change.to_str().unwrap()]).await;
    assert_eq!(again, plan);
    assert_eq!(
        navarch.page("/debug/push_status").await.unwrap(),
        pushes,
        "the plan pushed no resource"
    );

    // Pages of other sites cannot send such a request: forms cannot set its content type.
    let host = navarch.monitoring;
    let form = spawn_blocking(move || {
        let output = std::process::Command::new("curl")
            .args([
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "-d",
                "{}",
                &format!("http://{host}/debug/plan"),
            ])
            .output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    });

    if let Ok(status) = form.await.unwrap() {
        assert_eq!(status, "415");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_behind_a_resource_and_a_push_are_named() {
    let (folder, navarch) = start().await;
    let _sidecars = sidecars(&navarch, &[Reaction::Accept]).await;
    acknowledged_by(&navarch, 1).await;
    let (why, code) = run_command(
        &navarch,
        &["why", "proxy", "web-0.bookshop", "9080", "--type", "rds"],
    )
    .await;

    let objects: Vec<&str> = why["resources"][0]["objects"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["object"].as_str())
        .collect();

    assert_eq!(code, 0);

    for object in [
        "VirtualService bookshop/reviews",
        "Service bookshop/reviews",
        "Service bookshop/catalog",
    ] {
        assert!(objects.contains(&object), "{object} in {objects:?}");
    }

    let mut pushed = serde_json::Value::Null;

    // If the sidecar changed its subscription meanwhile, the push has that cause, too: then try
    // another edit.
    for weight in 40..50 {
        let before = pushed["at"].clone();
        edit(&folder, weight);
        let why = run_command_until(&navarch, &["why", "push", "web-0.bookshop"], |why, _| {
            let newest = &why["pushes"][0];
            newest["at"] != before
                && newest["causes"].to_string().contains("VirtualService")
                && !newest["taken"].is_null()
        });
        pushed = why.await["pushes"][0].clone();
        if !pushed["causes"].to_string().contains("its subscription") {
            break;
        }
    }

    assert_eq!(pushed["type"], "rds");
    assert_eq!(
        pushed["causes"],
        serde_json::json!(["VirtualService bookshop/reviews"]),
        "the rule is unchanged"
    );

    assert_eq!(
        (&pushed["resources"], &pushed["taken"]),
        (&1.into(), &true.into()),
        "{pushed}"
    );
    assert!(
        pushed["bytes"].as_u64().unwrap() > 100 && pushed["answeredMs"].as_f64().is_some(),
        "{pushed}"
    );

    assert_eq!(
        command_output(&[
            "why",
            "push",
            "no.body",
            "--address",
            &navarch.monitoring.to_string()
        ])
        .1,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn why_not_finds_the_first_reason_for_a_failed_request() {
    let (folder, navarch) = start().await;
    let _sidecars = sidecars(&navarch, &[Reaction::Accept]).await;
    let _catalog = connect(
        navarch.xds,
        "catalog-v1-1",
        "bookshop",
        "127.0.10.21",
        &[("app", "catalog")],
        Reaction::Accept,
    )
    .await;
    acknowledged_by(&navarch, 2).await;

    // The listeners may not have arrived yet.
    let question = ["why", "not", "web-0.bookshop", "catalog:9080/"];
    run_command_until(&navarch, &question, |fine, code| {
        code == 0 && fine["reason"].is_null()
    })
    .await;
    let (port, code) = run_command(&navarch, &["why", "not", "web-0.bookshop", "catalog:1"]).await;
    assert!(
        code == 3 && port["reason"].as_str().unwrap().contains("no port 1"),
        "{port}"
    );

    let policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: closed, namespace: bookshop}\n\
                  spec: {selector: {matchLabels: {app: catalog}}, action: DENY, rules: [{to: [{operation: {paths: [/secret]}}]}]}\n";
    std::fs::write(folder.path().join("policy.yaml"), policy).unwrap();
    let question = ["why", "not", "web-0.bookshop", "catalog:9080/secret"];
    let denied = run_command_until(&navarch, &question, |_, code| code == 3).await;
    assert!(
        denied["reason"].as_str().unwrap().contains("403"),
        "{denied}"
    );

    assert!(
        denied["advice"]
            .as_str()
            .unwrap()
            .contains("AuthorizationPolicy bookshop/closed"),
        "{denied}"
    );

    assert_eq!(
        run_command(&navarch, &["why", "not", "web-0.bookshop", "catalog:9080/"])
            .await
            .1,
        0,
        "other paths are allowed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn applied_covers_many_proxies_in_one_request() {
    let (folder, navarch) = start().await;
    let _sidecars = sidecars(&navarch, &[Reaction::Accept; 300]).await;
    acknowledged_by(&navarch, 300).await;
    edit(&folder, 30);
    let begin = Instant::now();
    let applied = acknowledged_by(&navarch, 300).await;
    let waited = begin.elapsed();
    let requested_at = Instant::now();

    let _ = run_command(&navarch, &["applied", "vs", "reviews", "-n", "bookshop"]).await;
    println!(
        "300 proxies: all have acknowledged an edit after {waited:?}; one query takes {:?}",
        requested_at.elapsed()
    );
    assert_eq!(
        (
            &applied["reached"],
            &applied["pending"],
            &applied["refused"]
        ),
        (&300.into(), &0.into(), &0.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_by_one_of_many_proxies_is_reported_without_quarantine() {
    let (folder, navarch) = start_with_identities(3).await;
    let rejects = Reaction::Reject("canary-host", "I do not know canary-host");
    let sidecars = sidecars(&navarch, &[Reaction::Accept, Reaction::Accept, rejects]).await;
    have_routes(&sidecars).await;
    acknowledged_by(&navarch, 3).await;
    let split = edited(
        "reviews-routing.yaml",
        &[
            ("weight: 90", "weight: 100"),
            ("weight: 10\n", "weight: 0\n"),
        ],
    );

    let split = split.replace(
        "    - name: split\n",
        "    - name: split\n      headers: {request: {set: {x: canary-host}}}\n",
    );
    std::fs::write(folder.path().join("reviews-routing.yaml"), split).unwrap();
    let applied = run_command_until(&navarch, &APPLIED, |output, code| {
        code == 4 && output["replicas"][0]["applied"]["taken"] == 2
    });
    let applied = applied.await["replicas"][0]["applied"].clone();
    assert_eq!(applied["refusedProxies"][0]["proxy"], "web-2.bookshop");

    assert_eq!(
        applied["refusedProxies"][0]["said"],
        "I do not know canary-host"
    );
    assert_eq!(
        applied["quarantined"],
        serde_json::Value::Null,
        "a NACK by one of three does not affect the others"
    );

    // While the control plane tries other versions on a proxy to find the rejected object, the
    // proxy's last response is an accepted one.
    let end = Instant::now() + Duration::from_secs(20);
    let text = loop {
        let address = navarch.monitoring.to_string();
        let (text, code) =
            spawn_blocking(move || crate::command_output(&["doctor", "--address", &address]))
                .await
                .unwrap();
        if code == 3 {
            break text;
        }
        assert!(Instant::now() < end, "{text}");
    };

    assert!(
        text.contains("web-2.bookshop rejects rds: I do not know canary-host"),
        "{text}"
    );
    assert!(
        text.contains("next: navarch why push web-2.bookshop"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_objects_are_quarantined_until_the_next_edit() {
    let (folder, navarch) = start_with_identities(2).await;
    let rejects = Reaction::Reject("canary-host", "I do not know canary-host");
    let sidecars = sidecars(&navarch, &[rejects, rejects]).await;
    have_routes(&sidecars).await;
    acknowledged_by(&navarch, 2).await;
    let text = edited(
        "reviews-routing.yaml",
        &[(
            "    - name: split\n",
            "    - name: split\n      headers: {request: {set: {x: canary-host}}}\n",
        )],
    );

    std::fs::write(folder.path().join("reviews-routing.yaml"), text).unwrap();
    let applied = run_command_until(&navarch, &APPLIED, |output, code| {
        let applied = &output["replicas"][0]["applied"];
        code == 4 && !applied["quarantined"].is_null() && applied["taken"] == 2
    });
    let applied = applied.await["replicas"][0]["applied"].clone();
    assert_eq!(
        (&applied["quarantined"], &applied["refused"]),
        (
            &"rejected by 2 of 2 workloads of its namespace; one of them: \"I do not know canary-host\"".into(),
            &0.into()
        ),
        "{applied}"
    );

    let address = navarch.monitoring.to_string();
    let (text, code) =
        spawn_blocking(move || crate::command_output(&["doctor", "--address", &address]))
            .await
            .unwrap();
    assert!(
        code == 3 && text.contains("VirtualService bookshop/reviews is quarantined"),
        "{text}"
    );

    assert!(
        text.contains("next: kubectl edit virtualservice -n bookshop reviews"),
        "{text}"
    );
    edit(&folder, 60);
    acknowledged_by(&navarch, 2).await;

    // The edit ends the quarantine.
    run_command_until(&navarch, &APPLIED, |_, code| code == 0).await;
    let (health, code) = run_command(&navarch, &["doctor"]).await;
    assert_eq!(
        (code, &health[0]["health"]["proxies"]),
        (0, &2.into()),
        "{health}"
    );
}

/// A rule of the reviews that these sidecars reject.
fn rejected_rule() -> String {
    let headers = "    - name: split\n      headers: {request: {set: {x: canary-host}}}\n";
    edited("reviews-routing.yaml", &[("    - name: split\n", headers)])
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_of_the_first_response_and_without_identity_are_reported_only() {
    let rejects = Reaction::Reject("canary-host", "I do not know canary-host");

    // A proxy that has never accepted a response could blame any object.
    let (folder, navarch) = start_with_identities(2).await;
    std::fs::write(folder.path().join("reviews-routing.yaml"), rejected_rule()).unwrap();
    until("the rule is read", async || {
        navarch
            .page("/debug/configz")
            .await
            .is_ok_and(|page| page.contains("canary-host"))
    })
    .await;
    let _first = sidecars(&navarch, &[rejects, rejects]).await;
    until("the rejection is investigated", async || {
        navarch
            .output()
            .contains("it has accepted no response of this type yet")
    })
    .await;
    let applied = run_command_until(&navarch, &APPLIED, |output, code| {
        code == 4 && output["replicas"][0]["applied"]["refused"] == 2
    });
    let applied = applied.await["replicas"][0]["applied"].clone();
    assert!(applied["quarantined"].is_null(), "{applied}");

    // Clients without authentication do not count, no matter how many they are or what they
    // accepted before.
    let (folder, navarch) = start().await;
    let _plain = sidecars(&navarch, &[rejects, rejects]).await;
    acknowledged_by(&navarch, 2).await;
    std::fs::write(folder.path().join("reviews-routing.yaml"), rejected_rule()).unwrap();
    let applied = run_command_until(&navarch, &APPLIED, |output, code| {
        code == 4 && output["replicas"][0]["applied"]["refused"] == 2
    });
    let applied = applied.await["replicas"][0]["applied"].clone();
    assert!(applied["quarantined"].is_null(), "{applied}");
    let (list, code) = run_command(&navarch, &["quarantine", "list"]).await;
    assert_eq!((code, &list["quarantined"]), (0, &serde_json::json!([])));
}
