//! Logs packets that the capture rules sent to the kernel's netfilter log
//! (`istio-iptables --iptables-trace-logging`), to find out why a connection is routed as it is.
//! Reading that log requires NET_ADMIN.
//!
//! ```text
//! rule ─▶ NFLOG, group 1337 ─▶ netlink socket ─▶ message ─▶ packet ─▶ line in the agent's log, some each second
//! ```

pub mod message;
pub mod packet;

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram as StdDatagram;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};
use tokio::net::UnixDatagram;
use tokio::time::{Duration, Instant};

use message::{Logged, Message, Request};

/// Maximum number of lines per second: there may be thousands of connections, and people read the
/// log.
const LINES: u32 = 50;
/// Buffer size for a batch of messages from the kernel, with room to spare.
const BATCH: usize = 64 << 10;

/// A netlink socket that receives logged packets. Its type is that of Unix datagrams, as tokio has
/// no type for netlink; waiting and receiving are the same for both.
#[derive(Debug)]
pub struct TraceLog(UnixDatagram);

impl TraceLog {
    /// Subscribes to the packets of a group.
    ///
    /// # Errors
    /// If the kernel has no packet log, permissions are missing, or another process reads the
    /// group.
    pub fn open(group: u16) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            flags,
            SockProtocol::NetlinkNetFilter,
        )?;

        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;

        for request in [Request::Bind, Request::CopyPackets] {
            send(fd.as_raw_fd(), &request.bytes(group), MsgFlags::empty())?;

            // The kernel answers before `send` returns.
            let mut answer = [0; 1024];
            let length = recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty())?;
            let answer = answer
                .get(..length)
                .expect("recv returns at most the length of its buffer");

            match message::parse(answer).first() {
                Some(Message::Outcome(0)) => {}
                Some(Message::Outcome(code)) => {
                    return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                }
                Some(Message::Logged(_)) | None => return Err(io::ErrorKind::InvalidData.into()),
            }
        }

        UnixDatagram::from_std(StdDatagram::from(fd)).map(Self)
    }

    /// Logs packets until dropped.
    ///
    /// # Errors
    /// If the socket fails.
    pub async fn run(self) -> io::Result<()> {
        let mut buffer = vec![0; BATCH];
        let mut limit = Limit::new(Instant::now());

        loop {
            let length = match self.0.recv(&mut buffer).await {
                Ok(length) => length,
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    tracing::warn!("the kernel dropped logged packets");
                    continue;
                }
                Err(error) => return Err(error),
            };

            let received = buffer
                .get(..length)
                .expect("recv returns at most the length of its buffer");
            for message in message::parse(received) {
                if let Message::Logged(Logged {
                    prefix,
                    payload,
                    user,
                }) = message
                {
                    match limit.take(Instant::now()) {
                        LogLine::Line => line(&prefix, &payload, user),
                        LogLine::LineAfter(left_out) => {
                            tracing::info!(
                                left_out,
                                "logged packets exceed the rate limit of this log"
                            );
                            line(&prefix, &payload, user);
                        }
                        LogLine::Nothing => {}
                    }
                }
            }
        }
    }
}

/// Logs one packet.
fn line(rule: &str, payload: &[u8], user: Option<u32>) {
    let packet = packet::describe(payload);
    match user {
        Some(user) => tracing::info!(rule, packet, user, "iptables rule matched"),
        None => tracing::info!(rule, packet, "iptables rule matched"),
    }
}

/// The rate limit of lines.
#[derive(Debug)]
struct Limit {
    /// Start of the current second.
    since: Instant,
    /// Number of lines in the current second.
    lines: u32,
    /// Dropped lines that are not reported yet.
    left_out: u64,
}

/// Whether a line may be written.
#[derive(Debug, PartialEq, Eq)]
enum LogLine {
    /// A line may be written.
    Line,
    /// A line may be written, and this many lines were dropped before it.
    LineAfter(u64),
    /// The line is dropped.
    Nothing,
}

impl Limit {
    /// Nothing was written yet.
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            lines: 0,
            left_out: 0,
        }
    }

    /// Requests a line.
    fn take(&mut self, now: Instant) -> LogLine {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.lines = 0;
        }
        if self.lines >= LINES {
            self.left_out += 1;
            return LogLine::Nothing;
        }
        self.lines += 1;
        match std::mem::take(&mut self.left_out) {
            0 => LogLine::Line,
            left_out => LogLine::LineAfter(left_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_logs_are_rate_limited_and_drops_are_reported() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut limit = Limit::new(now);
        assert!((0..LINES).all(|_| limit.take(now) == LogLine::Line));
        assert!((0..7).all(|_| limit.take(now) == LogLine::Nothing));
        assert_eq!(limit.take(later), LogLine::LineAfter(7));
        assert_eq!(limit.take(later), LogLine::Line);
    }
}
