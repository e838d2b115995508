//! What passes on the wire between two addresses. Needs root.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, recv, socket};
use serde::{Deserialize, Serialize};

/// Keeps all frames until it is stopped.
#[derive(Debug)]
pub struct Sniffer {
    /// Whether it is to stop.
    stop: Arc<AtomicBool>,
    /// Takes the frames.
    thread: JoinHandle<Vec<Vec<u8>>>,
}

/// What was seen between two addresses.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Seen {
    /// Frames that carried something.
    pub frames: usize,
    /// Those with the word in clear.
    pub clear: usize,
}

impl Sniffer {
    /// Listens on all devices of this network namespace; a bridge and the pods' ends are among them.
    ///
    /// # Errors
    /// Without root.
    pub fn start() -> Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut frames, mut buffer) = (Vec::new(), vec![0; 65536]);
            loop {
                // What was sent before it is stopped is there by then: it is taken before the end.
                let is_stopped = stopped.load(Ordering::SeqCst);
                match recv(socket.as_raw_fd(), &mut buffer, nix::sys::socket::MsgFlags::empty()) {
                    Ok(length) => frames.push(buffer.get(..length).unwrap_or_default().to_vec()),
                    Err(_) if is_stopped => return frames,
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(2)),
                }
            }
        });
        Ok(Self { stop, thread })
    }

    /// What was seen of a word between two addresses.
    ///
    /// # Panics
    /// When its thread has.
    #[must_use]
    pub fn stop(self, one: Ipv4Addr, other: Ipv4Addr, word: &str) -> Seen {
        self.stop.store(true, Ordering::SeqCst);
        let frames = self.thread.join().expect("the thread only receives");
        let between = frames.iter().filter(|frame| {
            let parties = (frame.get(26..30), frame.get(30..34));
            let (one, other) = (one.octets(), other.octets());
            let (one, other) = (Some(one.as_slice()), Some(other.as_slice()));
            parties == (one, other) || parties == (other, one)
        });
        between.fold(Seen::default(), |seen, frame| {
            let clear = frame.windows(word.len()).any(|part| part == word.as_bytes());
            Seen { frames: seen.frames + 1, clear: seen.clear + usize::from(clear) }
        })
    }
}
