//! Messages of the kernel's packet log over netlink (`linux/netfilter/nfnetlink_log.h`). Lengths
//! and types are in host byte order, netfilter's own values in network byte order.

/// The length of the netlink header and of netfilter's header after it.
const HEADERS: usize = 20;
/// The subsystem of the log, in the upper byte of a message type.
const LOG: u16 = 4 << 8;
const PACKET: u16 = LOG;
/// A configuration request.
const CONFIGURE: u16 = LOG | 1;
/// The result of a request.
const OUTCOME: u16 = 2;
/// Flags of a request with acknowledgement.
const REQUEST_WITH_ACK: u16 = 1 | 4;

/// A request to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Subscribes to the packets of the group.
    Bind,
    /// Makes packets contain their data, up to the size in the rules.
    CopyPackets,
}

impl Request {
    /// Encodes the request.
    #[must_use]
    pub fn bytes(self, group: u16) -> Vec<u8> {
        let attribute: &[u8] = match self {
            // NFULA_CFG_CMD: NFULNL_CFG_CMD_BIND.
            Self::Bind => &[1],
            // NFULA_CFG_MODE: a range of all bytes, NFULNL_COPY_PACKET.
            Self::CopyPackets => &[0, 0, 0xff, 0xff, 2, 0],
        };

        let kind: u16 = match self {
            Self::Bind => 1,
            Self::CopyPackets => 2,
        };

        // Both are a few bytes long.
        let length = u16::try_from(4 + attribute.len()).unwrap_or(0);
        let padded = attribute.len().next_multiple_of(4);
        let total = u32::try_from(HEADERS + 4 + padded).unwrap_or(0);
        let mut bytes = total.to_ne_bytes().to_vec();
        bytes.extend(CONFIGURE.to_ne_bytes());
        bytes.extend(REQUEST_WITH_ACK.to_ne_bytes());

        // Sequence number, sender and family are not needed: only one request is pending at a time.
        bytes.extend([0; 8]);
        bytes.extend([0, 0]);
        bytes.extend(group.to_be_bytes());
        bytes.extend(length.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(attribute);
        bytes.resize(HEADERS + 4 + padded, 0);

        bytes
    }
}

/// A message from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The result of a request: 0, or a negative error number.
    Outcome(i32),
    /// A packet was logged.
    Logged(Logged),
}

/// A packet that was logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// The log prefix of the rule.
    pub prefix: String,
    /// The start of the packet.
    pub payload: Vec<u8>,
    /// The user ID of the sender, if the kernel reports it.
    pub user: Option<u32>,
}

/// Splits bytes of this length off the front.
fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// A number in host byte order.
fn number16(bytes: &mut &[u8]) -> Option<u16> {
    take(bytes, 2)?.try_into().ok().map(u16::from_ne_bytes)
}

/// Parses messages; truncated and unknown ones are skipped.
#[must_use]
pub fn parse(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(length) = bytes
        .first_chunk()
        .and_then(|length| usize::try_from(u32::from_ne_bytes(*length)).ok())
    {
        let Some(message) = bytes.get(..length).filter(|message| message.len() >= 16) else {
            break;
        };
        messages.extend(one(message));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

/// Parses one message with its header.
fn one(mut message: &[u8]) -> Option<Message> {
    take(&mut message, 4)?;
    let kind = number16(&mut message)?;
    take(&mut message, 10)?;
    match kind {
        OUTCOME => take(&mut message, 4)?
            .try_into()
            .ok()
            .map(|code| Message::Outcome(i32::from_ne_bytes(code))),
        PACKET => {
            take(&mut message, 4)?;
            Some(Message::Logged(logged(message)))
        }
        _ => None,
    }
}

/// Parses the attributes of a packet.
fn logged(mut attributes: &[u8]) -> Logged {
    let mut logged = Logged::default();
    while let Some((length, kind)) = number16(&mut attributes).zip(number16(&mut attributes)) {
        let Some(length) = usize::from(length).checked_sub(4) else {
            break;
        };

        let Some(value) = take(&mut attributes, length) else {
            break;
        };

        match kind {
            9 => value.clone_into(&mut logged.payload),
            10 => {
                let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
                logged.prefix = String::from_utf8_lossy(text).into_owned();
            }
            11 => logged.user = value.try_into().ok().map(u32::from_be_bytes),
            _ => {}
        }

        let padding = length.next_multiple_of(4) - length;
        attributes = attributes.get(padding..).unwrap_or_default();
    }

    logged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + value.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(16 + body.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn netlink_packets_and_acknowledgements_are_parsed_in_sequence() {
        let attributes = [
            attribute(1, &[0; 4]),
            attribute(10, b"A:B\0"),
            attribute(11, &[0, 0, 5, 57]),
            attribute(9, &[69, 1, 2]),
        ];

        let body = [vec![2, 0, 5, 57], attributes.concat()].concat();
        let bytes = [
            message(PACKET, &body),
            message(3, &[0; 4]),
            message(OUTCOME, &(-1_i32).to_ne_bytes()),
        ]
        .concat();
        let logged = Logged {
            prefix: "A:B".to_owned(),
            payload: vec![69, 1, 2],
            user: Some(1337),
        };

        assert_eq!(
            parse(&bytes),
            [Message::Logged(logged), Message::Outcome(-1)]
        );
    }

    #[test]
    fn truncated_messages_are_harmless() {
        let bytes = message(
            PACKET,
            &[
                vec![2, 0, 5, 57],
                attribute(10, b"A\0"),
                attribute(9, &[1; 40]),
            ]
            .concat(),
        );

        for length in 0..bytes.len() {
            let mut broken = bytes.get(..length).unwrap().to_vec();
            assert!(parse(&broken).is_empty(), "{length}");
            if let Some(first) = broken.first_chunk_mut() {
                *first = u32::try_from(length).unwrap().to_ne_bytes();
            }
            assert!(parse(&broken).len() <= 1, "{length}");
        }

        assert!(parse(&[0; 64]).is_empty());
    }

    #[test]
    fn netlink_requests_have_the_length_in_their_header() {
        for request in [Request::Bind, Request::CopyPackets] {
            let bytes = request.bytes(1337);
            assert_eq!(
                u32::from_ne_bytes(*bytes.first_chunk().unwrap()) as usize,
                bytes.len()
            );
            assert_eq!(&bytes[18..20], 1337_u16.to_be_bytes());
        }
    }
}
