//! What passes on the wire between two addresses.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, recv, socket};

/// Frames are kept until it is stopped.
pub(crate) struct Sniffer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

/// What was seen between two addresses.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Frames that carried something.
    pub(crate) frames: usize,
    /// Those with the word in clear.
    pub(crate) clear: usize,
}

impl Sniffer {
    /// Listens on all devices of this namespace; the bridge and the pods' ends are among them.
    pub(crate) fn start() -> Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut frames, mut buffer) = (Vec::new(), vec![0; 65536]);
            loop {
                match recv(socket.as_raw_fd(), &mut buffer, nix::sys::socket::MsgFlags::empty()) {
                    Ok(length) => frames.push(buffer[..length].to_vec()),
                    Err(_) if stopped.load(Ordering::Relaxed) => return frames,
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(2)),
                }
            }
        });
        Ok(Self { stop, thread })
    }

    /// What was seen of a word between two addresses.
    pub(crate) fn stop(self, one: Ipv4Addr, other: Ipv4Addr, word: &str) -> Seen {
        std::thread::sleep(std::time::Duration::from_millis(50));
        self.stop.store(true, Ordering::Relaxed);
        let frames = self.thread.join().unwrap();
        let between = frames.iter().filter(|frame| {
            let parties = (frame.get(26..30), frame.get(30..34));
            let (one, other) = (&one.octets()[..], &other.octets()[..]);
            parties == (Some(one), Some(other)) || parties == (Some(other), Some(one))
        });
        between.fold(Seen::default(), |seen, frame| {
            let clear = frame.windows(word.len()).any(|part| part == word.as_bytes());
            Seen { frames: seen.frames + 1, clear: seen.clear + usize::from(clear) }
        })
    }
}
