//! Parsing and flow control of a session.

use std::borrow::Cow;

use super::*;
use crate::xds::grpc::Outbox;

/// A session with a number of streams after it has sent its opening bytes.
fn session_of(streams: u32) -> Session {
    let call = Call {
        server: "127.0.0.1:1".parse().unwrap(),
        method: "/a/B",
        encoding: None,
        omits_versions: false,
    };
    Session::open(&call, streams, &mut Vec::new())
}

/// A session with one stream.
fn session() -> Session {
    session_of(1)
}

/// A message with its gRPC prefix.
fn grpc(message: &[u8]) -> Vec<u8> {
    let mut outbox = Outbox::default();
    outbox.message(|out| out.extend_from_slice(message));
    outbox.bytes().to_vec()
}

fn frame(kind: Type, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, kind, flags, stream, payload);
    out
}

/// A SETTINGS frame with the server's initial window.
fn window(bytes: u32) -> Vec<u8> {
    frame(
        Type::Settings,
        0,
        0,
        &[&[0, 4][..], &bytes.to_be_bytes()].concat(),
    )
}

/// A WINDOW_UPDATE frame.
fn leave(stream: u32, bytes: u32) -> Vec<u8> {
    frame(Type::WindowUpdate, 0, stream, &bytes.to_be_bytes())
}

/// Parses all frames in some bytes.
fn frames(mut bytes: &[u8]) -> Vec<(Head, Vec<u8>)> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let head = Head::parse(take(&mut bytes, HEAD).try_into().unwrap());
        frames.push((head, take(&mut bytes, head.length).to_vec()));
    }
    frames
}

/// The size of the content of DATA frames.
fn content(bytes: &[u8]) -> usize {
    frames(bytes)
        .iter()
        .filter(|(head, _)| head.kind == Type::Data)
        .map(|(head, _)| head.length)
        .sum()
}

/// Feeds bytes to a session, and returns the messages, whether the stream ended, and the bytes to
/// send.
fn feed(session: &mut Session, mut bytes: &[u8]) -> Result<(Vec<Vec<u8>>, bool, Vec<u8>)> {
    let mut messages = Vec::new();
    let mut out = Vec::new();
    loop {
        match session.next(&mut bytes, &mut out)? {
            ServerBytes::Message(message) => messages.push(message.body.into_owned()),
            ServerBytes::Nothing => return Ok((messages, false, out)),
            ServerBytes::Ended => return Ok((messages, true, out)),
        }
    }
}

#[test]
fn messages_are_decoded_across_frame_and_read_boundaries() {
    let large = vec![7; 40_000];
    let stream = [grpc(b"one"), grpc(&large), grpc(b""), grpc(b"last")].concat();
    let mut bytes = [
        window(1 << 20),
        frame(Type::Headers, 4, STREAM, b"what nobody reads"),
    ]
    .concat();

    for (n, part) in stream.chunks(9_999).enumerate() {
        match n {
            // With three bytes of padding.
            1 => bytes.extend(frame(
                Type::Data,
                PADDED,
                STREAM,
                &[&[3], part, &[0; 3]].concat(),
            )),
            _ => bytes.extend(frame(Type::Data, 0, STREAM, part)),
        }
        bytes.extend(frame(Type::Data, 0, STREAM, b""));
        bytes.extend(frame(Type::Other(200), 1, STREAM, b"of an extension"));
    }

    bytes.extend(frame(Type::Headers, 4 | END_STREAM, STREAM, b"trailers"));

    for step in [1, 2, 3, 5, 8, 9, 10, 17, 100, 9_998, 16_384, bytes.len()] {
        let mut session = session();
        let mut got = Vec::new();
        let mut ended = false;
        for part in bytes.chunks(step) {
            assert!(!ended);
            let (messages, end, _) = feed(&mut session, part).unwrap();
            got.extend(messages);
            ended = end;
        }
        assert!(
            ended && got == [b"one".to_vec(), large.clone(), Vec::new(), b"last".to_vec()],
            "in pieces of {step} bytes"
        );
    }
}

#[test]
fn a_message_that_lies_in_one_read_is_not_copied() {
    let bytes = frame(Type::Data, 0, STREAM, &[grpc(b"a"), grpc(b"b")].concat());
    let mut session = session();
    let mut input = bytes.as_slice();
    for expected in [b"a", b"b"] {
        let fed = session.next(&mut input, &mut Vec::new()).unwrap();
        assert!(
            matches!(fed, ServerBytes::Message(Message { body: Cow::Borrowed(body), .. }) if body == expected)
        );
    }
    assert_eq!(
        session.next(&mut input, &mut Vec::new()).unwrap(),
        ServerBytes::Nothing
    );
}

#[test]
fn settings_and_pings_are_answered_once() {
    let mut session = session();
    let bytes = [
        window(70_000),
        frame(Type::Settings, ACK, 0, &[]),
        frame(Type::Ping, 0, 0, b"12345678"),
        frame(Type::Ping, ACK, 0, b"87654321"),
    ];
    let (_, ended, out) = feed(&mut session, &bytes.concat()).unwrap();
    assert!(!ended);
    assert_eq!(
        out,
        [
            frame(Type::Settings, ACK, 0, &[]),
            frame(Type::Ping, ACK, 0, b"12345678")
        ]
        .concat()
    );
}

#[test]
fn data_sent_never_exceeds_the_flow_control_windows() {
    let mut session = session();
    let mut out = Vec::new();
    session.send(0, &vec![1; 100_000], &mut out);
    assert_eq!(content(&out), 65_535, "the default window");
    assert!(
        frames(&out)
            .iter()
            .all(|(head, _)| head.length <= MAX_FRAME)
    );

    let mut feed = |bytes: Vec<u8>| content(&feed(&mut session, &bytes).unwrap().2);
    assert_eq!(
        feed(leave(STREAM, 1_000)),
        0,
        "the connection's window is still empty"
    );
    assert_eq!(feed(leave(0, 10_000)), 1_000);
    assert_eq!(
        feed(window(65_535 + 2_000)),
        2_000,
        "a larger initial window applies to an open stream"
    );

    assert_eq!(feed(window(1_000)), 0, "or less");
    assert_eq!(
        feed(leave(STREAM, 66_000)),
        0,
        "the update only compensates the negative window"
    );
    assert_eq!(feed(leave(STREAM, 1_000)), 465);
    assert_eq!(
        feed(leave(3, 1_000)),
        0,
        "an update of an unknown stream is ignored"
    );

    assert_eq!(feed(leave(0, 1 << 20)), 0);
    assert_eq!(feed(leave(STREAM, 1 << 20)), 31_000);
}

#[test]
fn queued_messages_are_sent_first_and_in_order() {
    let mut session = session();
    let mut out = Vec::new();
    let sent: Vec<u8> = (0..150_000_u32)
        .map(|n| n.to_le_bytes()[n as usize % 3])
        .collect();
    let (first, second) = sent.split_at(90_000);
    session.send(0, first, &mut out);
    session.send(0, second, &mut out);

    for _ in 0..10 {
        out.extend(
            feed(
                &mut session,
                &[leave(0, 9_000), leave(STREAM, 9_000)].concat(),
            )
            .unwrap()
            .2,
        );
    }

    let got: Vec<u8> = frames(&out)
        .into_iter()
        .flat_map(|(_, payload)| payload)
        .collect();
    assert!(
        got == sent && session.streams[0].outflow.waiting.capacity() == 0,
        "{} bytes arrived",
        got.len()
    );
}

#[test]
fn a_window_update_is_sent_once_half_of_the_window_is_used() {
    let mut session = session();
    // Messages of one frame each.
    let bytes = frame(Type::Data, 0, STREAM, &grpc(&vec![0; MAX_FRAME - 5]));
    let frames_of_half = WINDOW as usize / 2 / MAX_FRAME;
    for n in 1..=2 * frames_of_half {
        let (messages, _, out) = feed(&mut session, &bytes).unwrap();
        assert_eq!(messages.len(), 1);
        match n % frames_of_half {
            0 => assert_eq!(
                out,
                [leave(0, WINDOW / 2), leave(STREAM, WINDOW / 2)].concat()
            ),
            _ => assert!(out.is_empty()),
        }
    }
}

#[test]
fn a_stream_ends_in_many_ways() {
    let fed = |bytes: Vec<u8>| feed(&mut session(), &bytes);
    assert!(
        fed(frame(Type::Data, END_STREAM, STREAM, &grpc(b"x")))
            .unwrap()
            .1
    );

    assert!(
        fed(frame(Type::Headers, 4 | END_STREAM, STREAM, b"x"))
            .unwrap()
            .1
    );

    let go_away = |last: u32, code: u32| {
        frame(
            Type::GoAway,
            0,
            0,
            &[last.to_be_bytes(), code.to_be_bytes(), *b"why?"].concat(),
        )
    };

    assert!(fed(go_away(0, 0)).unwrap().1, "GOAWAY before this stream");
    assert!(
        !fed(go_away(1, 0)).unwrap().1,
        "GOAWAY after this stream lets it complete"
    );

    let error = fed(go_away(1, 11)).unwrap_err();
    assert!(error.to_string().contains("11"), "{error}");
    let error = fed(frame(Type::Reset, 0, STREAM, &2_u32.to_be_bytes())).unwrap_err();
    assert!(error.to_string().contains('2'), "{error}");
    assert!(
        !fed(frame(Type::Reset, 0, 3, &2_u32.to_be_bytes()))
            .unwrap()
            .1,
        "a reset of another stream"
    );
}

#[test]
fn garbage_is_an_error() {
    let bad = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        frame(Type::Data, 0, 3, b"x"),
        frame(Type::Data, PADDED, STREAM, b""),
        frame(Type::Data, PADDED, STREAM, &[5, 1, 2]),
        frame(Type::Data, 0, STREAM, &[1, 0, 0, 0, 0]),
        frame(Type::Data, 0, STREAM, &[0, 0xff, 0, 0, 0]),
        frame(Type::Settings, 0, 0, b"12345"),
        window(u32::MAX),
        frame(Type::Ping, 0, 0, b"1234567"),
        frame(Type::WindowUpdate, 0, 0, b"123"),
        leave(0, 0),
        leave(STREAM, 0x7fff_ffff),
    ];

    for bytes in bad {
        assert!(feed(&mut session(), &bytes).is_err(), "{bytes:?}");
    }

    // Random bytes in any pieces must cause neither a panic nor an endless loop.
    let mut seed = 1_u32;

    for length in 0..2_000 {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Mostly small numbers, so that frame headers are often valid.
            (seed >> 24) as u8 & if seed & 0x700 == 0 { 255 } else { 9 }
        })
        .take(length % 200)
        .collect();
        let mut session = session();
        for part in bytes.chunks(1 + length % 7) {
            if !matches!(feed(&mut session, part), Ok((_, false, _))) {
                break;
            }
        }
    }
}

#[test]
fn streams_of_one_connection_share_only_its_window() {
    let mut session = session_of(2);
    let mut out = Vec::new();
    session.send(0, &vec![1; 40_000], &mut out);
    session.send(1, &vec![1; 40_000], &mut out);
    let sent = |bytes: &[u8], id| -> usize {
        let frames = frames(bytes).into_iter();
        frames
            .filter(|(head, _)| head.stream == id)
            .map(|(head, _)| head.length)
            .sum()
    };
    assert_eq!(sent(&out, STREAM), 40_000);
    assert_eq!(sent(&out, 3), 25_535, "the rest of the connection's window");
    let (_, _, more) = feed(&mut session, &leave(0, 100_000)).unwrap();
    assert_eq!(sent(&more, 3), 40_000 - 25_535);

    // Messages of both streams, each in two frames that alternate.
    let message = grpc(b"abcd");
    let (front, back) = message.split_at(6);
    let mut from = Vec::new();
    for part in [front, back] {
        for id in [STREAM, 3] {
            let bytes = frame(Type::Data, 0, id, part);
            let mut input = &bytes[..];
            while let ServerBytes::Message(message) =
                session.next(&mut input, &mut Vec::new()).unwrap()
            {
                from.push((message.body.into_owned(), session.current()));
            }
        }
    }
    assert_eq!(from, [(b"abcd".to_vec(), 0), (b"abcd".to_vec(), 1)]);
    assert!(feed(&mut session, &frame(Type::Data, 0, 5, b"")).is_err());
}
