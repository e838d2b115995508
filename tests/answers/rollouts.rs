//! Staged rollouts by a running control plane to simulated sidecars.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;

use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::wait::{Verbatim, until_some, wanted};
use serde_json::Value;
use tempfile::TempDir;

use crate::edited;
use crate::live::{run_command, sidecars, start, start_with_identities};
use crate::proxy::{Reaction, Sidecar};

/// The object's name in commands.
const REVIEWS: [&str; 4] = ["vs", "reviews", "-n", "bookshop"];

/// Writes the VirtualService of the reviews so that it adds a request header with `mark`, with
/// annotations.
fn write(folder: &Path, mark: &str, annotations: &str) {
    let split = format!("    - name: split\n      headers: {{request: {{set: {{x: {mark}}}}}}}\n");
    let with = format!("  name: reviews\n  annotations: {{{annotations}}}\n");
    let text = edited("reviews-routing.yaml", &[("    - name: split\n", &split)]);
    let at = text.find("kind: VirtualService").unwrap();
    let (head, rule) = text.split_at(at);
    assert!(rule.contains("  name: reviews\n"), "{rule}");
    std::fs::write(
        folder.join("reviews-routing.yaml"),
        format!("{head}{}", rule.replacen("  name: reviews\n", &with, 1)),
    )
    .unwrap();
}

fn count(sidecars: &[Sidecar], mark: &str) -> usize {
    sidecars
        .iter()
        .filter(|sidecar| sidecar.routes_by(mark))
        .count()
}

/// Waits until the rollout of the reviews meets a condition, and returns it with the exit code.
async fn wait_for_rollout(
    navarch: &Navarch,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> (Value, i32) {
    until_some(what, async || {
        let (status, code) =
            run_command(navarch, &[&["rollout", "status"][..], &REVIEWS].concat()).await;
        let rollout = &status["rollouts"][0];
        if is_so(rollout) {
            Ok((rollout.clone(), code))
        } else {
            Err((status, Verbatim(navarch.output())))
        }
    })
    .await
}

async fn wait_for_mark(sidecars: &[Sidecar], mark: &str, expected: usize) {
    until_some(&format!("{expected} route by {mark}"), async || {
        wanted(count(sidecars, mark), |now| *now == expected)
    })
    .await;
}

async fn send_command(navarch: &Navarch, order: &str) -> (Value, i32) {
    run_command(navarch, &[&["rollout", order][..], &REVIEWS].concat()).await
}

/// Starts a control plane with sidecars of one workload; all have the mark `first-mark`.
async fn mesh(reactions: &[Reaction]) -> (TempDir, Navarch, Vec<Sidecar>) {
    let (folder, navarch) = start().await;
    on(folder, navarch, reactions).await
}

/// The same with a given control plane.
async fn on(
    folder: TempDir,
    navarch: Navarch,
    reactions: &[Reaction],
) -> (TempDir, Navarch, Vec<Sidecar>) {
    let sidecars = sidecars(&navarch, reactions).await;
    write(folder.path(), "first-mark", "");
    wait_for_mark(&sidecars, "first-mark", reactions.len()).await;
    (folder, navarch, sidecars)
}

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn a_rollout_advances_by_stage_and_can_be_aborted() {
    let (folder, navarch, sidecars) = mesh(&[Reaction::Accept; 40]).await;
    write(
        folder.path(),
        "second-mark",
        "navarch.io/rollout: '20%,60%', navarch.io/rollout-pause: 1h",
    );

    let taken = |stage: u64| {
        move |one: &Value| {
            one["stage"] == stage
                && one["reached"].as_u64() > Some(0)
                && one["taken"] == one["reached"]
        }
    };

    let (first, code) = wait_for_rollout(&navarch, "the first stage", taken(1)).await;
    let share = usize::try_from(first["reached"].as_u64().unwrap()).unwrap();
    assert_eq!(
        (code, &first["state"], &first["stages"]),
        (
            3,
            &"rolling".into(),
            &serde_json::json!(["20%", "60%", "100%"])
        ),
        "{first}"
    );

    assert!((1..=20).contains(&share), "{share} of 40 are about 20 %");
    assert_eq!(
        (
            count(&sidecars, "second-mark"),
            count(&sidecars, "first-mark")
        ),
        (share, 40 - share)
    );

    let early: Vec<usize> = (0..40)
        .filter(|n| sidecars[*n].routes_by("second-mark"))
        .collect();
    let metrics = navarch.metrics().await.unwrap();
    assert!(
        metrics.contains("navarch_rollouts 1") && metrics.contains("navarch_rollouts_stopped 0"),
        "{metrics}"
    );

    // A paused rollout continues on a command; proxies that have the new version keep it.
    let (paused, code) = send_command(&navarch, "pause").await;
    assert_eq!(
        (code, &paused["rollouts"][0]["state"]),
        (0, &"paused".into()),
        "{paused}"
    );
    assert_eq!(send_command(&navarch, "promote").await.1, 0);

    let (second, _) = wait_for_rollout(&navarch, "the second stage", taken(2)).await;
    assert!(
        second["reached"].as_u64() > first["reached"].as_u64(),
        "{second}"
    );
    assert!(early.iter().all(|n| sidecars[*n].routes_by("second-mark")));
    assert_eq!(send_command(&navarch, "promote").await.1, 0);
    wait_for_mark(&sidecars, "second-mark", 40).await;

    assert_eq!(send_command(&navarch, "promote").await.1, 0);
    let (_, code) = wait_for_rollout(&navarch, "complete", Value::is_null).await;
    assert_eq!(code, 0);
    assert_eq!(
        send_command(&navarch, "promote").await.1,
        5,
        "no rollout is left to promote"
    );

    // An abort lasts until the next edit: reading the unchanged object again starts no rollout.
    write(
        folder.path(),
        "third-mark",
        "navarch.io/rollout: '20%', navarch.io/rollout-pause: 1h",
    );
    wait_for_rollout(&navarch, "the first stage", taken(1)).await;
    let (aborted, code) = send_command(&navarch, "abort").await;

    assert_eq!(
        (code, &aborted["rollouts"][0]["state"]),
        (0, &"stopped".into()),
        "{aborted}"
    );
    wait_for_mark(&sidecars, "second-mark", 40).await;
    write(
        folder.path(),
        "third-mark",
        "navarch.io/rollout: '20%', navarch.io/rollout-pause: 1h",
    );

    std::fs::write(folder.path().join("other.yaml"), "# read again\n").unwrap();
    let (stopped, code) =
        wait_for_rollout(&navarch, "stopped", |one| one["state"] == "stopped").await;
    assert_eq!(
        (code, &stopped["reason"], count(&sidecars, "third-mark")),
        (4, &"aborted by an operator".into(), 0)
    );
    let address = navarch.monitoring.to_string();
    let promote = move || {
        crate::command_output(
            &[
                &["rollout", "promote"][..],
                &REVIEWS,
                &["--address", &address],
            ]
            .concat(),
        )
    };

    let (text, code) = tokio::task::spawn_blocking(promote).await.unwrap();
    assert!(
        code == 1 && text.contains("was stopped"),
        "an aborted rollout cannot be promoted: {text}"
    );
    write(
        folder.path(),
        "fourth-mark",
        "navarch.io/rollout: '20%', navarch.io/rollout-pause: 0s",
    );

    wait_for_mark(&sidecars, "fourth-mark", 40).await;
    assert_eq!(
        wait_for_rollout(&navarch, "complete", Value::is_null)
            .await
            .1,
        0
    );
    let waits = ["rollout", "status", "--wait", "--timeout", "5s"];
    assert_eq!(run_command(&navarch, &waits).await.1, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_in_a_stage_rolls_back_without_quarantine() {
    let rejects = Reaction::Reject("bad-mark", "I do not know bad-mark");
    let (folder, navarch) = start_with_identities(20).await;
    let (folder, navarch, sidecars) = on(folder, navarch, &[rejects; 20]).await;
    write(
        folder.path(),
        "bad-mark",
        "navarch.io/rollout: '10%', navarch.io/rollout-pause: 1h",
    );
    let (stopped, code) =
        wait_for_rollout(&navarch, "stopped", |one| one["state"] == "stopped").await;
    assert_eq!(code, 4);

    assert!(
        stopped["reason"]
            .as_str()
            .unwrap()
            .contains("rejected rds: \"I do not know bad-mark\""),
        "{stopped}"
    );

    wait_for_mark(&sidecars, "first-mark", 20).await;
    let (applied, code) = run_command(&navarch, &[&["applied"][..], &REVIEWS].concat()).await;
    let applied = &applied["replicas"][0]["applied"];
    let reported = (
        code,
        &applied["quarantined"],
        &applied["taken"],
        &applied["rollout"],
    );

    assert_eq!(
        reported,
        (4, &Value::Null, &20.into(), &"stopped".into()),
        "{applied}"
    );
    let (health, code) = run_command(&navarch, &["doctor"]).await;
    assert!(
        code == 3 && health.to_string().contains("was stopped"),
        "{health}"
    );

    // A proxy that rejected an earlier version does not stop the rollout of the next version.
    write(
        folder.path(),
        "good-mark",
        "navarch.io/rollout: '10%', navarch.io/rollout-pause: 0s",
    );
    wait_for_mark(&sidecars, "good-mark", 20).await;
    assert_eq!(
        wait_for_rollout(&navarch, "complete", Value::is_null)
            .await
            .1,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_without_identity_hold_a_rollout_and_do_not_stop_it() {
    let rejects = Reaction::Reject("bad-mark", "I do not know bad-mark");
    let (folder, navarch, sidecars) = mesh(&[rejects; 4]).await;
    write(
        folder.path(),
        "bad-mark",
        "navarch.io/rollout: '50%', navarch.io/rollout-pause: 0s",
    );
    let (held, code) = wait_for_rollout(&navarch, "held", |one| {
        one["reason"]
            .as_str()
            .is_some_and(|why| why.contains("this alone does not stop it"))
    })
    .await;
    assert_eq!((code, &held["state"]), (3, &"rolling".into()), "{held}");
    assert_eq!(send_command(&navarch, "abort").await.1, 0);
    wait_for_mark(&sidecars, "first-mark", 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_with_many_paused_rollouts_stops_no_other() {
    let (folder, navarch, sidecars) = mesh(&[Reaction::Accept; 4]).await;
    let hold = |number: usize, timeout: u32| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v{number}, namespace: evil, \
             annotations: {{navarch.io/rollout: 1%, navarch.io/rollout-pause: 24h}}}}\n\
             spec: {{hosts: [h{number}.example], http: [{{timeout: {timeout}s, route: [{{destination: {{host: a}}}}]}}]}}\n---\n"
        )
    };
    let all = |timeout| -> String { (0..40).map(|number| hold(number, timeout)).collect() };
    std::fs::write(folder.path().join("evil.yaml"), all(1)).unwrap();
    until_some(
        "rollouts of the namespace wait for each other",
        async || {
            let metrics = navarch.metrics().await.unwrap_or_default();
            if metrics.contains("navarch_rollouts_waiting 32") {
                Ok(())
            } else {
                Err(metrics)
            }
        },
    )
    .await;
    let (health, _) = run_command(&navarch, &["doctor"]).await;
    assert!(health.to_string().contains("8 are in progress"), "{health}");

    write(
        folder.path(),
        "second-mark",
        "navarch.io/rollout: '50%', navarch.io/rollout-pause: 0s",
    );
    wait_for_mark(&sidecars, "second-mark", 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unresponsive_proxy_holds_a_rollout() {
    let mut reactions = vec![Reaction::Accept; 10];
    reactions[3] = Reaction::Ignore;
    let (folder, navarch) = start().await;
    let sidecars = sidecars(&navarch, &reactions).await;
    wait_for_mark(&sidecars, "split", 10).await;
    write(
        folder.path(),
        "new-mark",
        "navarch.io/rollout: '100%', navarch.io/rollout-pause: 0s",
    );

    let (waits, code) = wait_for_rollout(&navarch, "pending", |one| one["taken"] == 9).await;
    assert_eq!(
        (code, &waits["pendingProxies"]),
        (3, &serde_json::json!(["web-3.bookshop"])),
        "{waits}"
    );

    assert_eq!(
        run_command(
            &navarch,
            &[&["rollout", "promote", "--full"][..], &REVIEWS].concat()
        )
        .await
        .1,
        0
    );

    assert_eq!(
        wait_for_rollout(&navarch, "complete", Value::is_null)
            .await
            .1,
        0
    );
}

/// A fake Prometheus whose queries return a value `holds` times, then an empty vector.
fn prometheus(holds: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let mut first = String::new();
            BufReader::new(&stream).read_line(&mut first).unwrap();
            assert!(
                first.starts_with("GET /api/v1/query?query=up%20%3E%200 "),
                "{first}"
            );
            let result = if n < holds {
                r#"[{"metric":{},"value":[1,"1"]}]"#
            } else {
                "[]"
            };

            let body = format!(
                r#"{{"status":"success","data":{{"resultType":"vector","result":{result}}}}}"#
            );
            let length = body.len();
            _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });

    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_query_rolls_a_change_back() {
    let folder = crate::bookshop();
    let address = prometheus(1);
    let flags = ["--registries=".to_owned()];
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let variables = [
        ("NAVARCH_PROMETHEUS_URL", address.as_str()),
        ("NAVARCH_ROLLOUT_QUERY_NAMESPACES", "*"),
        ("NAVARCH_ROLLOUT", "50%"),
        ("NAVARCH_ROLLOUT_PAUSE", "0s"),
    ];
    let navarch = Navarch::start_at(program, folder.path(), &flags, &variables, Addresses::ANY)
        .await
        .unwrap();
    let sidecars = sidecars(&navarch, &[Reaction::Accept; 10]).await;
    wait_for_mark(&sidecars, "split", 10).await;

    // The mesh-wide stages apply to objects without annotations.
    write(folder.path(), "first-mark", "");
    wait_for_mark(&sidecars, "first-mark", 10).await;
    wait_for_rollout(&navarch, "complete", Value::is_null).await;
    write(
        folder.path(),
        "second-mark",
        "navarch.io/rollout-query: up > 0",
    );

    let (stopped, _) = wait_for_rollout(&navarch, "stopped", |one| one["state"] == "stopped").await;
    assert!(
        stopped["reason"]
            .as_str()
            .unwrap()
            .contains("its result is an empty vector"),
        "{stopped}"
    );

    wait_for_mark(&sidecars, "first-mark", 10).await;
    assert!(
        navarch.output().contains("stage=2") || navarch.output().contains("\"stage\":2"),
        "{}",
        navarch.output()
    );
}
