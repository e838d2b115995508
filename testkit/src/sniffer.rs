//! Captures the frames between two addresses. Requires root.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, recv, socket};
use serde::{Deserialize, Serialize};

/// Captures all frames until it is stopped.
#[derive(Debug)]
pub struct Sniffer {
    stop: Arc<AtomicBool>,
    /// Receives the frames.
    thread: JoinHandle<Vec<Vec<u8>>>,
}

/// The captured frames between two addresses.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Seen {
    /// Number of frames with a payload.
    pub frames: usize,
    /// Number of frames that contain the word in clear text.
    pub clear: usize,
}

impl Sniffer {
    /// Captures on all devices of this network namespace, including a bridge and the pods'
    /// interfaces.
    ///
    /// # Errors
    /// Without root.
    pub fn start() -> Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            flags,
            SockProtocol::EthAll,
        )?;

        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut frames = Vec::new();
            let mut buffer = vec![0; 65536];

            loop {
                // Frames sent before the stop have arrived by then, and are received before the
                // end.
                let is_stopped = stopped.load(Ordering::SeqCst);
                match recv(
                    socket.as_raw_fd(),
                    &mut buffer,
                    nix::sys::socket::MsgFlags::empty(),
                ) {
                    Ok(length) => frames.push(buffer.get(..length).unwrap_or_default().to_vec()),
                    Err(_) if is_stopped => return frames,
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(2)),
                }
            }
        });

        Ok(Self { stop, thread })
    }

    /// The frames with a word between two addresses.
    ///
    /// # Panics
    /// If its thread has panicked.
    #[must_use]
    pub fn stop(self, one: Ipv4Addr, other: Ipv4Addr, word: &str) -> Seen {
        self.stop.store(true, Ordering::SeqCst);
        let frames = self.thread.join().expect("the thread only receives");
        let between = frames.iter().filter(|frame| {
            let parties = (frame.get(26..30), frame.get(30..34));
            let one = one.octets();
            let other = other.octets();
            let one = Some(one.as_slice());
            let other = Some(other.as_slice());
            parties == (one, other) || parties == (other, one)
        });

        between.fold(Seen::default(), |seen, frame| {
            let clear = frame
                .windows(word.len())
                .any(|part| part == word.as_bytes());
            Seen {
                frames: seen.frames + 1,
                clear: seen.clear + usize::from(clear),
            }
        })
    }
}
