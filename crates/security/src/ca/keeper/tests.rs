//! Root rotations by command, across restarts, and by plugging in another CA.

mod failing_server;

use std::path::Path;

use parking_lot::Mutex;

use super::super::rotation::CommandRejection;
use super::*;
use navarch_pki::KeyType;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn clock() -> SystemTime {
    jiff::Timestamp::now().into()
}

fn root() -> Bundle {
    Bundle::self_signed("cluster.local", KeyType::P256, DAY * 10, clock()).unwrap()
}

/// Stores its state in a directory; no overlap.
fn config(folder: &Path) -> KeeperConfig {
    KeeperConfig {
        rules: RotationRules {
            overlap: Duration::ZERO,
            longest: DAY,
            renewed_at: None,
        },
        plugged_in: PluggedIn {
            folder: folder.join("cacerts"),
            secrets: None,
        },
        self_signed: RootStore::Folder(folder.join("state")),
        rotation: RootStore::Folder(folder.join("state/plugged-in")),
        distributed: None,
        make: Arc::new(|_| Ok(root())),
        check: DAY,
        look: Duration::from_millis(20),
        replica: "one".to_owned(),
        clock,
    }
}

/// The proxies that lack a root.
type Absent = Arc<Mutex<Vec<Missing>>>;

/// A running keeper, and the proxies that lack a root.
async fn at_work(
    config: KeeperConfig,
    tasks: &mut tokio::task::JoinSet<()>,
) -> (CurrentAuthority, RotationCommands, Absent) {
    let (keeper, authority, commands) = start(config).await.unwrap();
    let absent = Absent::default();
    let missing = absent.clone();
    tasks.spawn(keeper.run(Arc::new(move |_| missing.lock().clone())));
    (authority, commands, absent)
}

/// Waits for a phase.
async fn reach(commands: &RotationCommands, phase: Phase) {
    let reached = polled(|| commands.status().phase == phase).await;
    assert!(reached, "{phase:?} is not reached: {:?}", commands.status());
}

fn late() -> Missing {
    Missing {
        who: "web-1.shop".to_owned(),
        why: "late".to_owned(),
    }
}

#[tokio::test]
async fn an_ordered_root_waits_for_every_proxy_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    let (authority, commands, absent) = at_work(config(folder.path()), &mut tasks).await;
    let old = authority.get().roots().pem().to_owned();
    assert!(matches!(
        commands.send(RotationCommand::Switch).await,
        Err(RotateError::Rejected(CommandRejection::NothingToDo))
    ));

    *absent.lock() = vec![late()];
    commands.send(RotationCommand::Begin).await.unwrap();
    assert!(matches!(
        commands.send(RotationCommand::Begin).await,
        Err(RotateError::Rejected(CommandRejection::UnderWay))
    ));
    assert!(matches!(
        commands.send(RotationCommand::Switch).await,
        Err(RotateError::Rejected(CommandRejection::Missing(missing))) if missing == [late()]
    ));

    assert_eq!(authority.get().root_certificates().len(), 2);
    let signs = authority.get().not_after();
    tasks.shutdown().await;

    let (authority, commands, absent) = {
        let (keeper, authority, commands) = start(config(folder.path())).await.unwrap();
        let absent: Absent = Arc::new(Mutex::new(vec![late()]));
        let missing = absent.clone();
        tasks.spawn(keeper.run(Arc::new(move |_| missing.lock().clone())));
        (authority, commands, absent)
    };

    assert_eq!(commands.status().phase, Phase::Distributing);
    assert_eq!(
        (
            authority.get().not_after(),
            authority.get().root_certificates().len()
        ),
        (signs, 2)
    );

    absent.lock().clear();
    reach(&commands, Phase::Retiring).await;
    assert!(
        authority.get().roots().pem().contains("BEGIN") && authority.get().roots().pem() != old
    );
    let roles: Vec<_> = commands
        .status()
        .roots
        .iter()
        .map(|root| root.role)
        .collect();

    assert_eq!(roles, [RootRole::Signing, RootRole::Former]);
    let first = std::fs::read_to_string(folder.path().join("state/ca-cert.pem")).unwrap();
    assert_ne!(first, old, "the new one signs");
}

#[tokio::test]
async fn a_root_in_a_folder_is_created_once_with_a_private_key_file() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let (_, first, _) = start(config(folder.path())).await.unwrap();
    let (_, second, _) = start(config(folder.path())).await.unwrap();
    assert_eq!(first.get().roots(), second.get().roots());
    let state = folder.path().join("state");
    for name in ["ca-key.pem", "state.json"] {
        let mode = std::fs::metadata(state.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }

    // The state of an earlier version: only the two files; one of them alone is an error.
    std::fs::remove_file(state.join("state.json")).unwrap();
    let (_, third, _) = start(config(folder.path())).await.unwrap();
    assert_eq!(first.get().roots(), third.get().roots());
    std::fs::remove_file(state.join("ca-key.pem")).unwrap();
    let error = start(config(folder.path())).await.unwrap_err();
    assert!(chain(&error).contains("ca-key.pem is missing"), "{error}");
}

#[tokio::test]
async fn a_forced_switch_ignores_missing_proxies() {
    let folder = tempfile::tempdir().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    let (_authority, commands, absent) = at_work(config(folder.path()), &mut tasks).await;
    *absent.lock() = vec![late()];
    commands.send(RotationCommand::Begin).await.unwrap();
    commands
        .send(RotationCommand::SwitchRegardless)
        .await
        .unwrap();
    assert_eq!(commands.status().phase, Phase::Retiring);
}

/// Writes a CA into the directory of the plugged-in one.
fn plug(folder: &Path, ca: &Bundle) {
    let folder = folder.join("cacerts");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("ca-cert.pem"), &ca.certificate).unwrap();
    std::fs::write(folder.join("ca-key.pem"), ca.key.expose()).unwrap();
    std::fs::write(folder.join("root-cert.pem"), &ca.roots).unwrap();
}

#[tokio::test]
async fn a_ca_that_is_plugged_in_later_is_distributed_before_it_signs() {
    let folder = tempfile::tempdir().unwrap();
    let one = root();
    let two = root();
    plug(folder.path(), &one);
    let mut tasks = tokio::task::JoinSet::new();
    let (authority, commands, absent) = at_work(config(folder.path()), &mut tasks).await;
    assert_eq!(authority.get().roots().pem(), one.roots);
    assert!(
        !folder.path().join("state/state.json").exists(),
        "no root is created beside a plugged-in CA"
    );

    assert!(matches!(
        commands.send(RotationCommand::Begin).await,
        Err(RotateError::Rejected(CommandRejection::PluggedIn))
    ));
    *absent.lock() = vec![late()];
    plug(folder.path(), &two);
    reach(&commands, Phase::Distributing).await;
    assert_eq!(authority.get().root_certificates().len(), 2);

    tasks.shutdown().await;

    // The old root's key is in no file any more, and yet it continues to sign.
    let (authority, commands, absent) = {
        let (keeper, authority, commands) = start(config(folder.path())).await.unwrap();
        let absent: Absent = Arc::new(Mutex::new(Vec::new()));
        let missing = absent.clone();
        assert_eq!(commands.status().phase, Phase::Distributing);
        tasks.spawn(keeper.run(Arc::new(move |_| missing.lock().clone())));
        (authority, commands, absent)
    };

    absent.lock().clear();
    reach(&commands, Phase::Retiring).await;
    assert_eq!(authority.get().root_certificates().len(), 2);
    tasks.shutdown().await;
    let (_, authority, _) = start(config(folder.path())).await.unwrap();
    assert_eq!(
        authority.get().root_certificates().len(),
        2,
        "certificates from before a restart are still trusted"
    );
}

/// The signing root and the trusted roots after a start.
async fn after_start(config: KeeperConfig) -> (String, usize, Phase, Option<String>) {
    let (_, authority, commands) = start(config).await.unwrap();
    let status = commands.status();
    let signing = status
        .roots
        .iter()
        .find(|root| root.role == RootRole::Signing)
        .unwrap();
    let trusted = authority.get().root_certificates().len();
    (
        signing.fingerprint.clone(),
        trusted,
        status.phase,
        status.problem.clone(),
    )
}

/// The digest that identifies a root.
fn fingerprint(ca: &Bundle) -> String {
    let der = super::super::bundle::certificates(&ca.certificate, "").unwrap();
    navarch_base::digest::sha256_hex(&der[0])
}

#[tokio::test]
async fn a_ca_replaced_while_stopped_is_distributed_before_it_signs() {
    let folder = tempfile::tempdir().unwrap();
    let one = root();
    let two = root();
    plug(folder.path(), &one);
    drop(start(config(folder.path())).await.unwrap());
    plug(folder.path(), &two);
    let (signing, trusted, phase, _) = after_start(config(folder.path())).await;
    assert_eq!(
        (signing, trusted, phase),
        (fingerprint(&one), 2, Phase::Distributing)
    );

    // The previous CA is plugged in again: the new root is dropped at the next change that is
    // detected, not at a start.
    let mut tasks = tokio::task::JoinSet::new();
    let (_authority, commands, absent) = at_work(config(folder.path()), &mut tasks).await;
    *absent.lock() = vec![late()];
    plug(folder.path(), &one);
    reach(&commands, Phase::Settled).await;
    tasks.shutdown().await;

    // The files are gone: the last CA stays in use, and the problem is reported.
    std::fs::remove_dir_all(folder.path().join("cacerts")).unwrap();
    let (signing, trusted, _, problem) = after_start(config(folder.path())).await;
    assert_eq!((signing, trusted), (fingerprint(&one), 1));
    assert!(problem.unwrap().contains("no longer exist"));
}

#[tokio::test]
async fn a_ca_plugged_in_while_stopped_replaces_the_self_signed_root_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (first, trusted, ..) = after_start(config(folder.path())).await;
    assert_eq!(trusted, 1);
    plug(folder.path(), &root());
    let (signing, trusted, phase, _) = after_start(config(folder.path())).await;
    assert_eq!((signing, trusted, phase), (first, 2, Phase::Distributing));
}

#[tokio::test]
async fn distributed_roots_take_precedence_over_stored_ones() {
    let folder = tempfile::tempdir().unwrap();
    let one = root();
    let two = root();
    plug(folder.path(), &one);
    drop(start(config(folder.path())).await.unwrap());

    // Another replica has rotated to the other CA meanwhile, and the first one is not trusted any
    // more.
    plug(folder.path(), &two);
    let pods_have = |roots: &str| KeeperConfig {
        distributed: Some(roots.to_owned()),
        ..config(folder.path())
    };
    let (signing, trusted, phase, _) = after_start(pods_have(&two.roots)).await;

    assert_eq!(
        (signing, trusted, phase),
        (fingerprint(&two), 1, Phase::Settled)
    );

    // The same with an earlier self-signed root.
    let self_signed = RootStore::Folder(folder.path().join("state"));
    let stale = RootSet::single(root(), Origin::SelfSigned);
    self_signed.save(&stale, None).await.unwrap();
    std::fs::remove_dir_all(folder.path().join("state/plugged-in")).unwrap();
    let (signing, trusted, ..) = after_start(pods_have(&two.roots)).await;
    assert_eq!((signing, trusted), (fingerprint(&two), 1));

    // Unless pods have it.
    std::fs::remove_dir_all(folder.path().join("state/plugged-in")).unwrap();
    let given = stale.roots().unwrap();
    let (signing, trusted, phase, _) = after_start(pods_have(&given)).await;
    assert_eq!(
        (signing, trusted, phase),
        (fingerprint(&stale.signer), 2, Phase::Distributing)
    );
}

#[tokio::test]
async fn broken_files_leave_the_ca_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    plug(folder.path(), &root());
    let mut tasks = tokio::task::JoinSet::new();
    let (authority, commands, _absent) = at_work(config(folder.path()), &mut tasks).await;
    let before = authority.get().roots().pem().to_owned();
    std::fs::write(
        folder.path().join("cacerts/ca-cert.pem"),
        root().certificate,
    )
    .unwrap();
    until(|| commands.status().problem.is_some()).await;
    let problem = commands.status().problem.clone().unwrap();
    assert!(
        problem.contains("does not match its certificate"),
        "{problem}"
    );
    assert_eq!(authority.get().roots().pem(), before);
}

/// Why a keeper does not start.
async fn start_error(folder: &Path) -> String {
    chain(&start(config(folder)).await.unwrap_err())
}

#[tokio::test]
async fn a_damaged_state_folder_is_reported_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    drop(start(config(folder.path())).await.unwrap());
    let path = folder.path().join("state/state.json");
    let whole = std::fs::read(&path).unwrap();
    let empty_key = |name: &str| {
        let mut entries: std::collections::BTreeMap<String, String> =
            serde_json::from_slice(&whole).unwrap();
        entries.insert(name.to_owned(), String::new());
        serde_json::to_vec(&entries).unwrap()
    };

    let torn = &whole[..whole.len() / 2];

    for (content, reason) in [
        (torn, "ends unexpectedly, at line 1"),
        (b"", "is empty"),
        (b"[]", "is not a JSON object of strings"),
        (b"{}", "has no entry \"ca-key.pem\""),
        (
            b"{\"ca-key.pem\":\"%%\"}",
            "entry \"ca-key.pem\" is not base64",
        ),
        (&empty_key("ca-key.pem"), "entry \"ca-key.pem\" is empty"),
    ] {
        std::fs::write(&path, content).unwrap();
        let error = start_error(folder.path()).await;
        assert!(
            error.contains("state/state.json: ") && error.contains(reason),
            "{error}"
        );
        assert!(
            !error.contains("BEGIN") && !error.contains("LS0t"),
            "the error contains secrets: {error}"
        );
    }

    // The error names the remedy: without this file, the two files beside it are used.
    std::fs::remove_file(&path).unwrap();
    drop(start(config(folder.path())).await.unwrap());
    std::fs::write(folder.path().join("state/ca-key.pem"), "").unwrap();
    let error = start_error(folder.path()).await;
    assert!(error.contains("state/ca-key.pem: is empty"), "{error}");
}

#[tokio::test]
async fn partially_written_files_are_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    drop(start(config(folder.path())).await.unwrap());
    let path = |name: &str| folder.path().join("state").join(name);
    let certificate = std::fs::read(path("ca-cert.pem")).unwrap();

    // The state after a full disk or a crash.
    std::fs::remove_file(path("ca-cert.pem")).unwrap();
    std::fs::write(path("ca-key.pem"), "-----BEGIN PRI").unwrap();
    std::fs::write(path(".state.json.partial"), "{").unwrap();
    drop(start(config(folder.path())).await.unwrap());
    assert_eq!(std::fs::read(path("ca-cert.pem")).unwrap(), certificate);
    assert!(
        std::fs::read_to_string(path("ca-key.pem"))
            .unwrap()
            .contains("END PRIVATE KEY")
    );

    // The same while it runs.
    let mut tasks = tokio::task::JoinSet::new();
    let _at_work = at_work(config(folder.path()), &mut tasks).await;
    std::fs::remove_file(path("ca-cert.pem")).unwrap();
    until(|| path("ca-cert.pem").exists()).await;

    // The first check has read the record, so it is not lost with its file.
    std::fs::remove_file(path("state.json")).unwrap();
    std::fs::remove_file(path("ca-key.pem")).unwrap();
    std::fs::remove_file(path("ca-cert.pem")).unwrap();
    until(|| path("state.json").exists()).await;
}

/// Waits for a condition.
async fn until(holds: impl Fn() -> bool) {
    assert!(polled(holds).await, "the condition never became true");
}

/// Whether a condition holds within a minute.
async fn polled(holds: impl Fn() -> bool) -> bool {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .is_ok()
}

/// A file system of 64 KiB, mounted while the process lives; `None` if the system does not permit
/// that.
fn small_disk() -> Option<(std::process::Child, std::path::PathBuf)> {
    use std::io::BufRead as _;
    use std::process::{Command, Stdio};
    let script = "mount -t tmpfs -o size=64k tmpfs /mnt && echo mounted && exec cat";
    let mut unshare = Command::new("unshare");
    let unshare = unshare.args(["--map-root-user", "--mount", "sh", "-c", script]);
    let mut child = unshare
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take()?)
        .read_line(&mut line)
        .ok()?;
    let folder = std::path::PathBuf::from(format!("/proc/{}/root/mnt", child.id()));
    (line == "mounted\n" && folder.is_dir()).then_some((child, folder))
}

#[tokio::test]
async fn a_full_disk_is_survived_and_tried_again() {
    let Some((mut child, folder)) = small_disk() else {
        eprintln!("skipped: no file system can be mounted here (unshare --map-root-user --mount)");
        return;
    };

    let mut tasks = tokio::task::JoinSet::new();
    let (authority, commands, _absent) = at_work(config(&folder), &mut tasks).await;
    let state = folder.join("state");
    let before = authority.get().roots().pem().to_owned();
    let kept = std::fs::read(state.join("state.json")).unwrap();
    let fill = || {
        let mut filler = std::fs::File::create(folder.join("filler")).unwrap();
        while std::io::Write::write_all(&mut filler, &[0; 512]).is_ok() {}
    };
    fill();

    let error = commands.send(RotationCommand::Begin).await.unwrap_err();
    assert!(chain(&error).contains("No space left"), "{}", chain(&error));
    assert_eq!(
        std::fs::read(state.join("state.json")).unwrap(),
        kept,
        "the last version is still in the file"
    );

    assert_eq!(
        authority.get().roots().pem(),
        before,
        "a root that is not stored is not in force"
    );
    std::fs::remove_file(state.join("ca-cert.pem")).unwrap();
    fill();
    until(|| {
        commands
            .status()
            .problem
            .as_ref()
            .is_some_and(|problem| problem.contains("ca-cert.pem"))
    })
    .await;
    std::fs::remove_file(folder.join("filler")).unwrap();
    until(|| state.join("ca-cert.pem").exists() && commands.status().problem.is_none()).await;
    commands.send(RotationCommand::Begin).await.unwrap();
    tasks.shutdown().await;
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn roots_of_a_later_release_are_neither_used_nor_replaced() {
    let folder = tempfile::tempdir().unwrap();
    drop(start(config(folder.path())).await.unwrap());
    let path = folder.path().join("state/state.json");
    let mut entries: std::collections::BTreeMap<String, String> =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(entries["format"], "MQ==", "1 in base64");
    entries.insert("format".to_owned(), "Mg==".to_owned());
    let later = serde_json::to_vec(&entries).unwrap();
    std::fs::write(&path, &later).unwrap();

    let error = start_error(folder.path()).await;
    assert!(
        error.contains("state/state.json: format is 2") && error.contains("supports format 1"),
        "{error}"
    );

    // They may be in use, so that a CA that is plugged in now must not sign at once.
    plug(folder.path(), &root());
    let error = start_error(folder.path()).await;
    assert!(error.contains("state/state.json: format is 2"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), later);
}
