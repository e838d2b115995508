//! Processes exit on command, and their exit status is reported.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::{AdminApi, DrainPlan, EnvoyCommand, EnvoyEnd, Launch, keep};

fn shell(script: &str) -> Launch {
    let arguments = vec!["-c".to_owned(), script.to_owned()];
    Launch {
        launcher: Vec::new(),
        program: "/bin/sh".to_owned(),
        arguments,
        variables: Vec::new(),
        user: None,
    }
}

fn plan(duration: Duration) -> DrainPlan {
    // No server listens on port 1: a failed drain request must not prevent Envoy from exiting.
    let admin = AdminApi {
        host: "127.0.0.1".to_owned(),
        port: 1,
    };
    DrainPlan {
        admin,
        inbound_only: true,
        duration,
        until_unused: None,
        own_ports: Vec::new(),
    }
}

/// Runs a script with a list of commands.
async fn run(script: &str, drain: Duration, given: &[EnvoyCommand]) -> (EnvoyEnd, Duration) {
    let (give, mut orders) = mpsc::channel(8);
    for order in given {
        give.send(order.clone()).await.unwrap();
    }
    let start = Instant::now();
    let ended = timeout(
        Duration::from_secs(10),
        keep(shell(script), &plan(drain), &mut orders),
    )
    .await;
    (ended.expect("it ends").unwrap(), start.elapsed())
}

#[tokio::test]
async fn exit_codes_are_passed_on_and_signals_become_shell_exit_codes() {
    assert_eq!(
        run("exit 7", Duration::ZERO, &[]).await.0,
        EnvoyEnd::ByItself(7)
    );
    assert_eq!(
        run("kill -SEGV $$", Duration::ZERO, &[]).await.0,
        EnvoyEnd::ByItself(128 + 11)
    );
}

#[tokio::test]
async fn termination_waits_for_the_drain_unless_it_was_drained_before() {
    let drain = Duration::from_millis(300);
    let (ended, took) = run("exec sleep 60", drain, &[EnvoyCommand::Terminate]).await;
    assert!(ended == EnvoyEnd::OnOrder && took >= drain, "{took:?}");
    let (ended, took) = run(
        "exec sleep 60",
        Duration::from_secs(60),
        &[EnvoyCommand::Drain, EnvoyCommand::Terminate],
    )
    .await;
    assert!(
        ended == EnvoyEnd::OnOrder && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_drain_is_cut_short_by_quit_and_by_the_process_itself() {
    let (ended, took) = run(
        "exec sleep 60",
        Duration::from_secs(60),
        &[EnvoyCommand::Terminate, EnvoyCommand::Quit],
    )
    .await;
    assert!(
        ended == EnvoyEnd::OnOrder && took < Duration::from_secs(5),
        "{took:?}"
    );
    let (ended, _) = run(
        "sleep 0.2; exit 3",
        Duration::from_secs(60),
        &[EnvoyCommand::Terminate],
    )
    .await;
    assert_eq!(ended, EnvoyEnd::OnOrder);
}

#[tokio::test]
async fn a_restart_starts_with_the_new_arguments() {
    let other = EnvoyCommand::Restart(vec!["-c".to_owned(), "exit 9".to_owned()]);
    assert_eq!(
        run("exec sleep 60", Duration::from_millis(10), &[other])
            .await
            .0,
        EnvoyEnd::ByItself(9)
    );
}
