//! Files that are not text, not regular, or never end.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use super::*;

#[tokio::test]
async fn a_file_that_is_not_text_keeps_its_last_objects() {
    let mut listener =
        listen(|folder| fs::write(folder.join("a.yaml"), text("a", "1")).unwrap()).await;
    fs::write(listener.source.0.path("a.yaml"), b"\xff\xfe").unwrap();
    listener
        .until_problems(|problems| {
            matches!(
                problems,
                [Problem {
                    fault: ProblemKind::Unreadable(_),
                    ..
                }]
            )
        })
        .await;

    listener.expect_quiet("m").await;
    fs::write(listener.source.0.path("a.yaml"), text("a", "2")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");
    listener
        .until_problems(|problems| problems.is_empty())
        .await;
}

#[tokio::test]
async fn files_whose_names_are_not_text_are_distinguished() {
    let name = |byte: u8| {
        let mut bytes = vec![byte];
        bytes.extend_from_slice(b".yaml");
        OsString::from_vec(bytes)
    };

    let mut listener = listen(|folder| {
        fs::write(folder.join(name(0xfe)), text("a", "1")).unwrap();
        fs::write(folder.join(name(0xff)), text("b", "1")).unwrap();
    })
    .await;
    assert_eq!(listener.objects.len(), 2);

    let folder = listener.source.0.folder.path().to_owned();
    fs::write(folder.join(name(0xff)), text("b", "2")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace b");
    fs::remove_file(folder.join(name(0xfe))).unwrap();
    assert_eq!(listener.next_change().await, "-Namespace a");
}

/// Waits until a file has exactly this problem; other files may have others.
async fn until_rejected(listener: &mut Listener<FilesApart>, file: &str, reason: &str) {
    let is_it = |problem: &&&Problem| {
        problem.place.file.ends_with(file)
            && matches!(&problem.fault, ProblemKind::Unreadable(error) if error.contains(reason))
    };
    listener
        .until_problems(|problems| problems.iter().filter(is_it).count() == 1)
        .await;
}

#[tokio::test]
async fn devices_and_fifos_are_rejected_and_other_files_are_read() {
    let mut listener = listen(|folder| {
        fs::write(folder.join("a.yaml"), text("a", "1")).unwrap();
        symlink("/dev/zero", folder.join("zero.yaml")).unwrap();
        nix::unistd::mkfifo(&folder.join("fifo.yaml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        // A regular file that no user can read.
        symlink("/proc/self/mem", folder.join("mem.yaml")).unwrap();
        symlink("loop.yaml", folder.join("loop.yaml")).unwrap();
    })
    .await;
    let bad = [
        ("zero.yaml", "is a character device, not a regular file"),
        ("fifo.yaml", "is a FIFO, not a regular file"),
        ("mem.yaml", "os error 5"),
        ("loop.yaml", "symbolic links"),
    ];

    for (file, reason) in bad {
        until_rejected(&mut listener, file, reason).await;
    }

    fs::write(listener.source.0.path("a.yaml"), text("a", "2")).unwrap();
    assert_eq!(listener.next_change().await, "~Namespace a");
    for (file, _) in bad {
        fs::remove_file(listener.source.0.path(file)).unwrap();
    }

    listener
        .until_problems(|problems| problems.is_empty())
        .await;
}

#[tokio::test]
async fn objects_of_a_file_replaced_by_a_fifo_stay_until_it_is_deleted() {
    let mut listener =
        listen(|folder| fs::write(folder.join("a.yaml"), text("a", "1")).unwrap()).await;
    let file = listener.source.0.path("a.yaml");
    let fifo = listener.source.0.path(".fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::rename(&fifo, &file).unwrap();
    until_rejected(&mut listener, "a.yaml", "is a FIFO").await;
    listener.expect_quiet("m").await;
    fs::remove_file(&file).unwrap();
    assert_eq!(listener.next_change().await, "-Namespace a");
    listener
        .until_problems(|problems| problems.is_empty())
        .await;
}

#[tokio::test]
async fn an_endlessly_growing_file_does_not_block_others() {
    let mut listener =
        listen(|folder| fs::write(folder.join("a.yaml"), text("a", "1")).unwrap()).await;
    let path = listener.source.0.path("b.yaml");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let writer = std::thread::spawn(move || {
        let mut file = fs::File::create(path).unwrap();
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            file.write_all(b"# growing\n").unwrap();
        }
    });

    for version in ["2", "3", "4"] {
        fs::write(listener.source.0.path("a.yaml"), text("a", version)).unwrap();
        assert_eq!(listener.next_change().await, "~Namespace a");
    }

    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
    fs::write(listener.source.0.path("b.yaml"), text("b", "1")).unwrap();
    assert_eq!(listener.next_change().await, "+Namespace b");
}

#[tokio::test]
async fn a_link_to_a_directory_with_a_file_name_is_read() {
    let elsewhere = TempDir::new().unwrap();
    fs::write(elsewhere.path().join("b.yaml"), text("b", "1")).unwrap();
    let mut listener = listen(|_| {}).await;
    symlink(elsewhere.path(), listener.source.0.path("folder.yaml")).unwrap();
    assert_eq!(listener.next_change().await, "+Namespace b");
    fs::remove_file(listener.source.0.path("folder.yaml")).unwrap();
    assert_eq!(listener.next_change().await, "-Namespace b");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_blocked_reader() {
    let ended = std::thread::spawn(|| {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        runtime.spawn(async {
            let (events, _receiver) = mpsc::channel(1);
            // Simulates reading from a file system that does not respond.
            let reader = move || held.recv().unwrap_or_default();
            run_thread(
                "place".to_owned(),
                Arc::default(),
                events,
                Arc::default(),
                reader,
            )
            .await
        });

        drop(runtime);
        hold
    });

    // The reader blocks until the runtime has shut down: if shutdown waited for it, this would
    // never return.
    drop(
        tokio::task::spawn_blocking(move || ended.join().unwrap())
            .await
            .unwrap(),
    );
}
