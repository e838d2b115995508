//! Requests to the kernel about addresses, rules and routes (rtnetlink), so that the image needs no
//! program for them.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily as RouteFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// The most that the kernel sends at once.
const ANSWER_BYTES: usize = 32 << 10;

/// The kernel's port.
const KERNEL: u32 = 0;

/// A connection to the kernel in the network namespace of this thread.
pub(super) struct Netlink {
    socket: OwnedFd,
    /// The number of the last request.
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Adds an object. One that exists is not changed.
    pub(super) fn add(&mut self, object: RouteNetlinkMessage) -> io::Result<()> {
        self.request(object, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)?;
        match self.answers().map(drop) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    pub(super) fn rules(&mut self, family: RouteFamily) -> io::Result<Vec<RuleMessage>> {
        let mut query = RuleMessage::default();
        query.header.family = family;
        self.request(RouteNetlinkMessage::GetRule(query), NLM_F_DUMP)?;
        let rule = |answer| {
            let RouteNetlinkMessage::NewRule(rule) = answer else {
                return None;
            };
            Some(rule)
        };
        Ok(self.answers()?.into_iter().filter_map(rule).collect())
    }

    /// Sends a request.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);

        sendto(
            self.socket.as_raw_fd(),
            &bytes,
            &NetlinkAddr::new(KERNEL, 0),
            MsgFlags::empty(),
        )?;
        Ok(())
    }

    /// The kernel's answers to the last request, which it sends before it accepts the next one. The
    /// last one is an acknowledgement, an error, or the end of a list.
    fn answers(&self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut answers = Vec::new();
        let mut buffer = vec![0; ANSWER_BYTES];

        loop {
            let length = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                received => received?,
            };
            let mut rest = buffer.get(..length).unwrap_or_default();
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|error| invalid(&error))?;
                // Messages begin at multiples of four.
                let length = usize::try_from(answer.header.length)
                    .map_err(|error| invalid(&error))?
                    .next_multiple_of(4);
                rest = rest.get(length.max(1)..).unwrap_or_default();
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                #[expect(
                    clippy::wildcard_enum_match_arm,
                    reason = "all others end nothing and hold nothing"
                )]
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    NetlinkPayload::Done(_) => return Ok(answers),
                    // An error with the code 0 is an acknowledgement.
                    NetlinkPayload::Error(outcome) => {
                        return match outcome.code {
                            None => Ok(answers),
                            Some(_) => Err(outcome.to_io()),
                        };
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The error for an answer that cannot be read.
fn invalid(error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
