//! The answer to a query: from the table, an error, or that of a resolver.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::table::{Addresses, Lookup, Table};

/// TTL of answers in seconds; short, since addresses change.
const TTL: u32 = 30;
/// Maximum size of an answer over UDP in bytes if the query has no EDNS.
const PLAIN_UDP: u16 = 512;
/// Maximum size of a message over TCP in bytes.
const TCP: u16 = u16::MAX;
/// Size of a DNS header; shorter queries are not answered.
const HEADER: usize = 12;
/// The UDP payload size in the agent's EDNS record, if the query has EDNS.
const PAYLOAD: u16 = 1232;

/// The transport of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Answers have at most 512 bytes, or the payload size in the query's EDNS record; longer ones
    /// are truncated.
    Udp,
    /// Answers have at most 65535 bytes; clients use TCP after a truncated answer over UDP.
    Tcp,
}

/// How a message is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// This answer is sent.
    Now(Vec<u8>),
    /// The query is forwarded to the resolvers.
    Forward(Question),
    /// No answer: the message is not a query.
    Nothing,
}

/// A query to forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The answer if all resolvers fail.
    pub failure: Vec<u8>,
    /// Maximum size of the answer in bytes.
    pub limit: u16,
    /// The transport of the query.
    pub carrier: Carrier,
}

/// Answers a message. `random` shuffles the addresses of a host to distribute connections.
#[must_use]
pub fn answer(
    message: &[u8],
    carrier: Carrier,
    table: Option<&Table>,
    random: u32,
    forward_early: bool,
) -> DnsAnswer {
    let Ok(query) = Message::from_vec(message) else {
        return malformed(message);
    };

    if query.metadata.message_type != MessageType::Query {
        return DnsAnswer::Nothing;
    }

    let limit = limit(&query, carrier);
    let now = |message: Message| encode(message, limit).map_or(DnsAnswer::Nothing, DnsAnswer::Now);
    if query.metadata.op_code != OpCode::Query {
        return now(reply(&query, ResponseCode::NotImp));
    }

    let Some(question) = query.queries.first() else {
        return now(reply(&query, ResponseCode::ServFail));
    };

    let failure = reply(&query, ResponseCode::ServFail);
    let Some(table) = table else {
        return if forward_early {
            forward(failure, limit, carrier)
        } else {
            now(failure)
        };
    };

    let kind = question.query_type();
    if question.query_class() != DNSClass::IN || !matches!(kind, RecordType::A | RecordType::AAAA) {
        return forward(failure, limit, carrier);
    }

    let name = question.name();
    let text = name.to_ascii().to_ascii_lowercase();
    let text = text.strip_suffix('.').unwrap_or(&text);
    let mut answers = Vec::new();
    let (owner, addresses) = match table.find(text) {
        Lookup::Unknown => return forward(failure, limit, carrier),
        Lookup::Host(addresses) => (name.clone(), addresses),
        Lookup::Alias(length, addresses) => {
            let target = text.get(..length).unwrap_or(text);
            let Ok(target) = Name::from_ascii(format!("{target}.")) else {
                return forward(failure, limit, carrier);
            };
            answers.push(Record::from_rdata(
                name.clone(),
                TTL,
                RData::CNAME(CNAME(target.clone())),
            ));
            (target, addresses)
        }
    };

    let records = records(&owner, kind, addresses, random);

    // An alias of a host without addresses of this family has no records, as the host itself.
    if records.is_empty() {
        answers.clear();
    }

    answers.extend(records);
    let mut response = reply(&query, ResponseCode::NoError);
    response.metadata.authoritative = true;
    response.answers = answers;

    now(response)
}

/// Forwards the query.
fn forward(failure: Message, limit: u16, carrier: Carrier) -> DnsAnswer {
    let failure = encode(failure, limit);
    failure.map_or(DnsAnswer::Nothing, |failure| {
        DnsAnswer::Forward(Question {
            failure,
            limit,
            carrier,
        })
    })
}

/// The records of a host in random order.
fn records(owner: &Name, kind: RecordType, addresses: &Addresses, random: u32) -> Vec<Record> {
    let record = |data| Record::from_rdata(owner.clone(), TTL, data);
    let mut records: Vec<Record> = if kind == RecordType::A {
        addresses
            .v4
            .iter()
            .map(|ip| record(RData::A(A(*ip))))
            .collect()
    } else {
        addresses
            .v6
            .iter()
            .map(|ip| record(RData::AAAA(AAAA(*ip))))
            .collect()
    };

    // A linear congruence is random enough to spread load.
    let mut state = random;

    for last in (1..records.len()).rev() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let range = u32::try_from(last + 1).unwrap_or(u32::MAX);
        records.swap(last, usize::try_from((state >> 8) % range).unwrap_or(0));
    }

    records
}

/// A response without records.
fn reply(query: &Message, code: ResponseCode) -> Message {
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.metadata.response_code = code;
    reply.queries.clone_from(&query.queries);
    if query.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        reply.edns = Some(edns);
    }
    reply
}

/// The answer to an invalid message: a format error, if it has a header and is not a response
/// itself.
fn malformed(message: &[u8]) -> DnsAnswer {
    let (Some([high, low, flags, _]), true) = (message.first_chunk::<4>(), message.len() >= HEADER)
    else {
        return DnsAnswer::Nothing;
    };
    if flags & 0x80 != 0 {
        return DnsAnswer::Nothing;
    }
    let id = u16::from_be_bytes([*high, *low]);
    let reply = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
    encode(reply, PLAIN_UDP).map_or(DnsAnswer::Nothing, DnsAnswer::Now)
}

/// The maximum size of the answer to a query.
fn limit(query: &Message, carrier: Carrier) -> u16 {
    match carrier {
        Carrier::Tcp => TCP,
        Carrier::Udp => query
            .edns
            .as_ref()
            .map_or(PLAIN_UDP, |edns| edns.max_payload().max(PLAIN_UDP)),
    }
}

/// Encodes a message with as many answers as fit, and sets the truncation flag if some do not.
fn encode(mut message: Message, limit: u16) -> Option<Vec<u8>> {
    loop {
        let bytes = message.to_vec().ok()?;
        let answers = message.answers.len();
        if bytes.len() <= usize::from(limit) || answers == 0 {
            return Some(bytes);
        }
        // As many as fit on average, and at least one fewer than before.
        message
            .answers
            .truncate((answers * usize::from(limit) / bytes.len()).min(answers - 1));
        message.metadata.truncation = true;
    }
}

/// Truncates a resolver's answer if it is too large.
pub(super) fn fit(response: Vec<u8>, limit: u16) -> Option<Vec<u8>> {
    if response.len() <= usize::from(limit) {
        return Some(response);
    }
    let parsed = Message::from_vec(&response).ok()?;
    let mut cut = parsed.truncate();
    cut.metadata.message_type = MessageType::Response;
    cut.to_vec()
        .ok()
        .filter(|bytes| bytes.len() <= usize::from(limit))
}
