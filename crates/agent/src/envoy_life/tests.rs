//! Processes exit on command, and their exit status is reported.

use std::path::Path;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{
    AdminApi, DrainPlan, EnvoyCommand, EnvoyEnd, HotRestart, Launch, NotStarted, ProgramStart,
    RunningEnvoys, SharedMemory, keep,
};

fn shell(script: &str) -> Launch {
    let arguments = vec!["-c".to_owned(), script.to_owned()];
    Launch {
        launcher: Vec::new(),
        program: "/bin/sh".to_owned(),
        arguments,
        variables: Vec::new(),
        user: None,
        hot_restart: None,
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

/// Segments in a folder of the test: those of real Envoys have the same names.
fn memory_in(folder: &Path) -> SharedMemory {
    SharedMemory {
        folder: folder.to_owned(),
    }
}

fn states() -> watch::Sender<RunningEnvoys> {
    watch::Sender::new(RunningEnvoys::default())
}

/// Runs a script with a list of commands.
async fn run(script: &str, drain: Duration, given: Vec<EnvoyCommand>) -> (EnvoyEnd, Duration) {
    let (give, mut commands) = mpsc::channel(8);
    for command in given {
        give.send(command).await.unwrap();
    }
    let start = Instant::now();
    let ended = timeout(
        Duration::from_secs(10),
        keep(shell(script), &plan(drain), &mut commands, states()),
    )
    .await;
    (ended.expect("it ends").unwrap(), start.elapsed())
}

#[tokio::test]
async fn exit_codes_are_passed_on_and_signals_become_shell_exit_codes() {
    assert_eq!(
        run("exit 7", Duration::ZERO, Vec::new()).await.0,
        EnvoyEnd::ByItself(7)
    );
    assert_eq!(
        run("kill -SEGV $$", Duration::ZERO, Vec::new()).await.0,
        EnvoyEnd::ByItself(128 + 11)
    );
}

#[tokio::test]
async fn termination_waits_for_the_drain_unless_it_was_drained_before() {
    let drain = Duration::from_millis(300);
    let (ended, took) = run("exec sleep 60", drain, vec![EnvoyCommand::Terminate]).await;
    assert!(ended == EnvoyEnd::OnCommand && took >= drain, "{took:?}");
    let (ended, took) = run(
        "exec sleep 60",
        Duration::from_secs(60),
        vec![EnvoyCommand::Drain, EnvoyCommand::Terminate],
    )
    .await;
    assert!(
        ended == EnvoyEnd::OnCommand && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_drain_is_cut_short_by_quit_and_by_the_process_itself() {
    let (ended, took) = run(
        "exec sleep 60",
        Duration::from_secs(60),
        vec![EnvoyCommand::Terminate, EnvoyCommand::Quit],
    )
    .await;
    assert!(
        ended == EnvoyEnd::OnCommand && took < Duration::from_secs(5),
        "{took:?}"
    );
    let (ended, _) = run(
        "sleep 0.2; exit 3",
        Duration::from_secs(60),
        vec![EnvoyCommand::Terminate],
    )
    .await;
    assert_eq!(ended, EnvoyEnd::OnCommand);
}

#[tokio::test]
async fn a_restart_starts_with_the_new_arguments() {
    let other = EnvoyCommand::Restart(vec!["-c".to_owned(), "exit 9".to_owned()]);
    assert_eq!(
        run("exec sleep 60", Duration::from_millis(10), vec![other])
            .await
            .0,
        EnvoyEnd::ByItself(9)
    );
}

#[tokio::test]
async fn an_order_to_end_during_a_restart_ends_envoy() {
    let restart = || EnvoyCommand::Restart(vec!["-c".to_owned(), "exit 9".to_owned()]);
    let drain = Duration::from_millis(300);
    let given = vec![restart(), EnvoyCommand::Terminate];
    let (ended, took) = run("exec sleep 60", drain, given).await;
    assert!(ended == EnvoyEnd::OnCommand && took >= drain, "{took:?}");

    let minute = Duration::from_secs(60);
    let given = vec![restart(), EnvoyCommand::Terminate, EnvoyCommand::Quit];
    let (ended, took) = run("exec sleep 60", minute, given).await;
    assert!(
        ended == EnvoyEnd::OnCommand && took < Duration::from_secs(5),
        "{took:?}"
    );
}

/// Runs two scripts as the first epoch and as each later one, and asks for the next epoch once.
async fn run_epochs(first: &str, later: &str, base_id: Option<&str>) -> EnvoyEnd {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("envoy-base-id");
    if let Some(base_id) = base_id {
        std::fs::write(&path, base_id).unwrap();
    }

    // The first argument after the script is its name.
    let script = format!("case \"$*\" in *--restart-epoch*) {later};; *) {first};; esac");
    let launch = Launch {
        hot_restart: Some(HotRestart {
            base_id: path,
            sockets: None,
            shared_memory: memory_in(folder.path()),
            parent_shutdown: Duration::from_secs(60),
            in_place: false,
        }),
        ..shell(&script)
    };

    let (give, mut commands) = mpsc::channel(8);
    give.send(EnvoyCommand::NextEpoch).await.unwrap();
    let plan = plan(Duration::ZERO);
    let ended = keep(launch, &plan, &mut commands, states());
    timeout(Duration::from_secs(10), ended)
        .await
        .expect("it ends")
        .unwrap()
}

#[tokio::test]
async fn the_next_epoch_goes_on_when_the_one_before_has_drained() {
    let ended = run_epochs("sleep 0.2; exit 5", "sleep 0.6; exit 9", Some("7\n")).await;
    assert_eq!(ended, EnvoyEnd::ByItself(9));
}

#[tokio::test]
async fn an_epoch_that_exits_leaves_its_predecessor_running() {
    let ended = run_epochs("sleep 1; exit 5", "exit 9", Some("7")).await;
    assert_eq!(ended, EnvoyEnd::ByItself(5));
}

#[tokio::test]
async fn an_epoch_that_exited_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("tried");
    let mark = mark.display();
    let later = format!("[ -e {mark} ] && {{ sleep 2; exit 9; }}; touch {mark}; exit 1");

    let ended = run_epochs("sleep 1; exit 5", &later, Some("7")).await;

    assert_eq!(ended, EnvoyEnd::ByItself(9));
}

#[tokio::test]
async fn without_a_base_id_the_running_envoy_goes_on() {
    let ended = run_epochs("sleep 0.5; exit 5", "exit 9", None).await;
    assert_eq!(ended, EnvoyEnd::ByItself(5));
}

/// A script that is replaced in place, in this folder.
fn in_place(folder: &Path, script: &str) -> Launch {
    let base_id = folder.join("envoy-base-id");
    std::fs::write(&base_id, "7").unwrap();
    Launch {
        hot_restart: Some(HotRestart {
            base_id,
            sockets: None,
            shared_memory: memory_in(folder),
            parent_shutdown: Duration::from_secs(60),
            in_place: true,
        }),
        ..shell(script)
    }
}

type Started = oneshot::Receiver<Result<ProgramStart, NotStarted>>;

/// A command to start another program, and the answer to it.
fn next_program(program: &str) -> (EnvoyCommand, Started) {
    let (started, answer) = oneshot::channel();
    let program = program.to_owned();
    (EnvoyCommand::NextProgram { program, started }, answer)
}

/// A program in a folder that runs until it is killed; returns its path.
fn program_that_hangs(folder: &Path) -> String {
    let path = folder.join("hangs");
    std::fs::write(&path, "#!/bin/sh\nexec sleep 60\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, executable).unwrap();
    path.display().to_string()
}

/// Runs an Envoy until it ends.
async fn run_to_end(launch: Launch, given: Vec<EnvoyCommand>) -> (EnvoyEnd, RunningEnvoys) {
    let (give, mut commands) = mpsc::channel(8);
    for command in given {
        give.send(command).await.unwrap();
    }
    let states = states();
    let seen = states.subscribe();
    let plan = plan(Duration::ZERO);
    let ended = keep(launch, &plan, &mut commands, states);
    let ended = timeout(Duration::from_secs(10), ended).await;
    let seen = seen.borrow().clone();
    (ended.expect("it ends").unwrap(), seen)
}

#[tokio::test]
async fn a_crashed_envoy_is_started_again_in_place_and_ends_by_itself_with_zero() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("crashed");
    let mark = mark.display();
    let script = format!("[ -e {mark} ] && {{ sleep 0.2; exit 0; }}; touch {mark}; kill -SEGV $$");

    let (ended, seen) = run_to_end(in_place(folder.path(), &script), Vec::new()).await;

    assert_eq!((ended, seen.restarts), (EnvoyEnd::ByItself(0), 1));
}

#[tokio::test]
async fn a_replaced_program_that_crashes_gives_way_to_the_one_of_the_image() {
    let folder = tempfile::tempdir().unwrap();
    let crashes = folder.path().join("crashes");
    std::fs::write(&crashes, "#!/bin/sh\nsleep 0.5; exit 3\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&crashes, executable).unwrap();
    // The first process of the image's program ends, as an Envoy that has drained; the second runs.
    let mark = folder.path().join("drained");
    let mark = mark.display();
    let script = format!("[ -e {mark} ] && exec sleep 60; touch {mark}; exec sleep 0.2");
    let mut envoy = Running::start(in_place(folder.path(), &script));

    assert_eq!(envoy.next_program(&crashes.display().to_string()).await, 1);
    envoy.send(EnvoyCommand::Accept).await;

    assert_eq!(envoy.until_epoch(0).await, "/bin/sh");
    assert_eq!(envoy.seen.borrow().restarts, 1);
    envoy.quit().await;
}

#[tokio::test]
async fn a_command_to_end_ends_the_wait_before_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (give, mut commands) = mpsc::channel(8);
    let plan = plan(Duration::ZERO);
    let launch = in_place(folder.path(), "exit 3");
    let terminate = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        give.send(EnvoyCommand::Terminate).await.unwrap();
        std::future::pending::<()>().await;
    };

    let ended = tokio::select! {
        ended = keep(launch, &plan, &mut commands, states()) => ended.unwrap(),
        () = terminate => panic!("it goes on"),
    };

    assert_eq!(ended, EnvoyEnd::OnCommand);
}

#[tokio::test]
async fn a_changed_bootstrap_starts_the_next_epoch_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let changed = vec!["-c".to_owned(), "sleep 0.4; exit 0".to_owned()];
    let launch = in_place(folder.path(), "exec sleep 0.2");

    let (ended, seen) = run_to_end(launch, vec![EnvoyCommand::Restart(changed)]).await;

    assert_eq!(ended, EnvoyEnd::ByItself(0));
    assert_eq!(seen.current.unwrap().epoch, 1);
}

#[tokio::test]
async fn a_program_on_trial_that_exits_is_not_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    // A later epoch of the former program runs on; the other program ends at once.
    let script = "case \"$*\" in *--restart-epoch*) sleep 1.5; exit 0;; *) exec sleep 1;; esac";
    let launch = in_place(folder.path(), script);
    let other = next_program("/bin/false").0;

    let (ended, seen) = run_to_end(launch, vec![other]).await;

    // No admin API answers here, so that the former program takes over from itself.
    assert_eq!(ended, EnvoyEnd::ByItself(0));
    assert_eq!(seen.current.unwrap().program, "/bin/sh");
    assert_eq!(seen.last_exit.unwrap().epoch, 1);
}

#[tokio::test]
async fn a_program_on_trial_is_killed_when_it_is_abandoned() {
    let folder = tempfile::tempdir().unwrap();
    let script = "case \"$*\" in *--restart-epoch*) sleep 1.5; exit 0;; *) exec sleep 1;; esac";
    let launch = in_place(folder.path(), script);
    let hangs = program_that_hangs(folder.path());
    let given = vec![next_program(&hangs).0, EnvoyCommand::Abandon];

    let (ended, seen) = run_to_end(launch, given).await;

    assert_eq!(ended, EnvoyEnd::ByItself(0));
    assert!(seen.last_exit.unwrap().reason.contains("SIGKILL"));
}

/// An Envoy that runs while a test sends commands.
struct Running {
    give: mpsc::Sender<EnvoyCommand>,
    seen: watch::Receiver<RunningEnvoys>,
    task: JoinSet<EnvoyEnd>,
}

impl Running {
    fn start(launch: Launch) -> Self {
        let (give, mut commands) = mpsc::channel(8);
        let states = states();
        let seen = states.subscribe();
        let plan = plan(Duration::ZERO);
        let mut task = JoinSet::new();
        task.spawn(async move { keep(launch, &plan, &mut commands, states).await.unwrap() });
        Self { give, seen, task }
    }

    async fn send(&self, command: EnvoyCommand) {
        self.give.send(command).await.unwrap();
    }

    /// Starts another program; returns its number.
    async fn next_program(&self, program: &str) -> u32 {
        let (command, answer) = next_program(program);
        self.send(command).await;
        answer.await.unwrap().unwrap().epoch
    }

    /// Waits until an epoch is the newest; returns its program.
    async fn until_epoch(&mut self, epoch: u32) -> String {
        let is_current = |all: &RunningEnvoys| {
            let current = all.current.as_ref();
            current.is_some_and(|current| current.epoch == epoch)
        };
        let seen = timeout(Duration::from_secs(10), self.seen.wait_for(is_current));
        let seen = seen.await.expect("the epoch starts").unwrap();
        seen.current.clone().unwrap().program
    }

    /// Waits until the task has carried out all commands before.
    async fn settle(&self) {
        while self.give.capacity() < self.give.max_capacity() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    fn epoch(&self) -> u32 {
        self.seen.borrow().current.as_ref().unwrap().epoch
    }

    async fn end(mut self) -> EnvoyEnd {
        let ended = timeout(Duration::from_secs(10), self.task.join_next()).await;
        ended.expect("it ends").unwrap().unwrap()
    }

    async fn quit(self) {
        self.send(EnvoyCommand::Quit).await;
        assert_eq!(self.end().await, EnvoyEnd::OnCommand);
    }
}

fn restart_with(script: &str) -> EnvoyCommand {
    EnvoyCommand::Restart(vec!["-c".to_owned(), script.to_owned()])
}

#[tokio::test]
async fn a_changed_bootstrap_waits_until_the_program_on_trial_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let hangs = program_that_hangs(folder.path());
    let mut envoy = Running::start(in_place(folder.path(), "exec sleep 60"));

    assert_eq!(envoy.next_program(&hangs).await, 1);
    envoy.send(restart_with("exec sleep 50")).await;
    envoy.send(EnvoyCommand::NextEpoch).await;
    envoy.settle().await;
    assert_eq!(envoy.epoch(), 1);

    envoy.send(EnvoyCommand::Accept).await;
    assert_eq!(envoy.until_epoch(2).await, hangs);
    envoy.settle().await;
    assert_eq!(envoy.epoch(), 2, "one epoch is enough for both");
    envoy.quit().await;
}

#[tokio::test]
async fn the_former_program_has_the_changed_bootstrap_after_an_abandoned_trial() {
    let folder = tempfile::tempdir().unwrap();
    let hangs = program_that_hangs(folder.path());
    let mark = folder.path().join("changed");
    let changed = format!("touch {}; exec sleep 50", mark.display());
    let mut envoy = Running::start(in_place(folder.path(), "exec sleep 60"));

    assert_eq!(envoy.next_program(&hangs).await, 1);
    envoy.send(restart_with(&changed)).await;
    envoy.send(EnvoyCommand::NextEpoch).await;
    envoy.send(EnvoyCommand::Abandon).await;

    // The number of the one that was killed is used again.
    let is_back = |all: &RunningEnvoys| {
        let current = all.current.as_ref();
        current.is_some_and(|current| current.epoch == 1 && current.program == "/bin/sh")
    };
    let seen = timeout(Duration::from_secs(10), envoy.seen.wait_for(is_back)).await;
    assert_eq!(seen.unwrap().unwrap().exits, 1);
    while !mark.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    envoy.quit().await;
}

#[tokio::test]
async fn the_next_epoch_follows_the_way_back_with_the_former_program() {
    let folder = tempfile::tempdir().unwrap();
    let hangs = program_that_hangs(folder.path());
    let mut envoy = Running::start(in_place(folder.path(), "exec sleep 60"));

    envoy.send(EnvoyCommand::NextEpoch).await;
    assert_eq!(envoy.next_program(&hangs).await, 2, "the real number");
    envoy.send(EnvoyCommand::NextEpoch).await;
    assert_eq!(envoy.next_program("/bin/sh").await, 3);
    envoy.settle().await;
    assert_eq!(envoy.epoch(), 3);

    envoy.send(EnvoyCommand::Accept).await;
    assert_eq!(envoy.until_epoch(4).await, "/bin/sh");
    envoy.quit().await;
}

/// An Envoy that has crashed twice, and is started again in a second.
async fn crashed(folder: &Path) -> Running {
    let envoy = Running::start(in_place(folder, "exit 3"));
    let mut seen = envoy.seen.clone();
    seen.wait_for(|all| all.restarts == 1).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    envoy
}

#[tokio::test]
async fn commands_while_a_crashed_envoy_waits_are_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let envoy = crashed(folder.path()).await;

    let (command, answer) = next_program("/bin/true");
    envoy.send(command).await;
    let answer = answer.await.unwrap();
    assert!(matches!(answer, Err(NotStarted::Crashed)), "{answer:?}");

    envoy.send(restart_with("exit 0")).await;
    assert_eq!(envoy.end().await, EnvoyEnd::ByItself(0));
}

#[tokio::test]
async fn an_envoy_that_was_to_drain_while_it_is_down_is_not_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let envoy = crashed(folder.path()).await;
    envoy.send(EnvoyCommand::Drain).await;
    assert_eq!(envoy.end().await, EnvoyEnd::ByItself(3));
}
