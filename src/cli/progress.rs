//! A progress line on the standard error during long operations, if it is a terminal. It is removed
//! at the end.

use std::io::{IsTerminal as _, Write};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use navarch_base::printable::escape;
use parking_lot::{Condvar, Mutex};

/// Operations shorter than this have no line.
const MIN_DURATION: Duration = Duration::from_millis(700);
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of characters, which fits into most terminals.
const MAX_WIDTH: usize = 70;
const CLEAR_LINE: &str = "\r\u{1b}[2K";

/// A possibly long operation. The line is removed when this is dropped.
pub(super) struct Progress {
    shared: Arc<Shared>,
    /// Writes the line; `None` without a terminal.
    writer: Option<JoinHandle<()>>,
}

/// The text, and whether the operation has ended.
struct Shared {
    state: Mutex<State>,
    /// Notified at the end.
    ended: Condvar,
}

/// The text, and whether the operation has ended.
struct State {
    text: String,
    is_over: bool,
}

impl Progress {
    /// Starts an operation with a text such as `asking 3 control planes`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the command waits by the real clock"
    )]
    pub(super) fn begin(text: &str) -> Self {
        if std::io::stderr().is_terminal() {
            Self::shown(
                text,
                std::io::stderr(),
                Instant::now,
                [MIN_DURATION, UPDATE_INTERVAL],
            )
        } else {
            Self {
                shared: Shared::new(text),
                writer: None,
            }
        }
    }

    /// Changes the text.
    pub(super) fn set_text(&self, text: String) {
        self.shared.state.lock().text = text;
    }

    fn shown(
        text: &str,
        to: impl Write + Send + 'static,
        clock: fn() -> Instant,
        times: [Duration; 2],
    ) -> Self {
        let shared = Shared::new(text);
        let own = shared.clone();
        let writer = std::thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || own.show(to, clock, times));
        // If the thread cannot be started, there is no line.
        Self {
            shared,
            writer: writer.ok(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.ended.notify_all();
        if let Some(writer) = self.writer.take() {
            // If the thread panicked, only the line is lost.
            _ = writer.join();
        }
    }
}

impl Shared {
    fn new(text: &str) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                text: text.to_owned(),
                is_over: false,
            }),
            ended: Condvar::new(),
        })
    }

    /// Writes the line until the operation ends, then removes it. Write errors are ignored.
    fn show(&self, mut to: impl Write, clock: fn() -> Instant, [mut wait, step]: [Duration; 2]) {
        let begun = clock();
        let mut state = self.state.lock();
        let mut is_shown = false;
        while !state.is_over {
            let timed_out = self.ended.wait_for(&mut state, wait).timed_out();
            if timed_out && !state.is_over {
                let seconds = clock().duration_since(begun).as_secs();
                let text: String = escape(&state.text).chars().take(MAX_WIDTH).collect();
                _ = write!(to, "{CLEAR_LINE}{text} … {seconds} s").and_then(|()| to.flush());
                is_shown = true;
            }
            wait = step;
        }
        if is_shown {
            _ = write!(to, "{CLEAR_LINE}").and_then(|()| to.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was written.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(paper: &Paper) -> String {
        String::from_utf8(paper.0.lock().clone()).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "the wait is a real one")]
    fn begin(paper: &Paper, short: Duration) -> Progress {
        Progress::shown(
            "asking",
            paper.clone(),
            Instant::now,
            [short, Duration::from_millis(1)],
        )
    }

    #[test]
    fn progress_of_slow_commands_is_shown_until_they_end() {
        let paper = Paper::default();
        let progress = begin(&paper, Duration::ZERO);
        while !written(&paper).contains("asking … 0 s") {
            std::thread::yield_now();
        }
        progress.set_text("2 of 3".to_owned());
        while !written(&paper).contains("2 of 3 … ") {
            std::thread::yield_now();
        }
        drop(progress);
        assert!(
            written(&paper).ends_with(CLEAR_LINE),
            "{:?}",
            written(&paper)
        );
    }

    #[test]
    fn a_progress_text_moves_no_cursor() {
        let paper = Paper::default();
        let progress = begin(&paper, Duration::ZERO);
        progress.set_text("web\u{1b}[2J\nforged".to_owned());
        while !written(&paper).contains(r"web\u{1b}[2J\nforged … ") {
            std::thread::yield_now();
        }
        drop(progress);
    }

    #[test]
    fn progress_of_fast_commands_is_not_shown() {
        let paper = Paper::default();
        drop(begin(&paper, Duration::from_mins(10)));
        assert_eq!(written(&paper), "");
    }
}
