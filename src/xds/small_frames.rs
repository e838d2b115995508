//! Large frames of data, cut into small ones on their way from a client to h2.
//!
//! h2 gathers a frame before it reads it, in a buffer that begins with 8 KiB and keeps the size of the largest frame. The
//! least that HTTP/2 lets a server ask for are frames of 16 KiB, in which an Envoy names a thousand clusters once; every
//! connection would hold 12 KiB more for it ever after. Sums and order of the data are as they were, so flow control is, too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// What a client says before its first frame.
const PREFACE: usize = 24;
/// Bytes of a frame's head: length (3), type, flags, stream (4).
const HEAD: usize = 9;
/// The most data in one frame: with its head, it fits the buffer that h2 begins with.
const MOST: usize = (8 << 10) - HEAD;
/// The most data in one frame that a client may send; h2 refuses what has more.
const ALLOWED: usize = 16 << 10;
/// The type of frames of data.
const DATA: u8 = 0;
/// The flag of a stream's last frame.
const END_STREAM: u8 = 0x1;
/// The flag of frames with padding, which are left as they are.
const PADDED: u8 = 0x8;

/// Where in what a client says one is.
#[derive(Debug)]
pub(super) struct SmallFrames {
    /// Which part comes next.
    place: Place,
    /// A head that is not whole, or not passed on yet.
    head: [u8; HEAD],
    /// How much of it there is.
    gathered: usize,
    /// How much of it is passed on, if it is to be.
    passed: Option<usize>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A frame's head.
    Head,
    /// So many bytes that pass as they are.
    Body(usize),
    /// A part of a large frame, and after it what of the frame needs further heads.
    Part {
        /// Bytes of the part.
        left: usize,
        /// Bytes after it.
        rest: usize,
        /// The flags of the frame.
        flags: u8,
    },
}

impl Default for SmallFrames {
    fn default() -> Self {
        Self { place: Place::Body(PREFACE), head: [0; HEAD], gathered: 0, passed: None }
    }
}

impl SmallFrames {
    /// Reads from a connection. Each frame's head and what of its data comes with it is read at once.
    pub(super) fn poll_read(
        &mut self,
        mut from: Pin<&mut impl AsyncRead>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(passed) = self.passed {
                let left = self.head.get(passed..).unwrap_or_default();
                let fits = left.len().min(to.remaining());
                to.put_slice(left.get(..fits).unwrap_or_default());
                self.passed = Some(passed + fits).filter(|passed| *passed < HEAD);
                return Poll::Ready(Ok(()));
            }
            if self.gathered > 0 {
                let mut head = ReadBuf::new(self.head.get_mut(self.gathered..).unwrap_or_default());
                ready!(from.as_mut().poll_read(context, &mut head))?;
                let came = head.filled().len();
                self.gathered += came;
                if came == 0 {
                    return Poll::Ready(Ok(()));
                }
                if self.gathered == HEAD {
                    (self.gathered, self.passed) = (0, Some(0));
                    self.head = self.begin(self.head, 0);
                }
                continue;
            }
            if let Place::Part { left, rest, flags } = self.place {
                let mut part = ReadBuf::new(to.initialize_unfilled_to(left.min(to.remaining())));
                ready!(from.as_mut().poll_read(context, &mut part))?;
                let came = part.filled().len();
                to.advance(came);
                self.place = Place::Part { left: left - came, rest, flags };
                if left == came {
                    self.next_part(rest, flags);
                }
                return Poll::Ready(Ok(()));
            }
            let before = to.filled().len();
            ready!(from.as_mut().poll_read(context, to))?;
            let fresh = to.filled_mut().get_mut(before..).unwrap_or_default();
            if fresh.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let ready = self.look_over(fresh);
            to.set_filled(before + ready);
            // The begin of a head alone is no news: nothing would be taken for the end.
            if ready > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Follows frames in what came, and begins to cut a large one. Tells how much is to be passed on now.
    fn look_over(&mut self, fresh: &mut [u8]) -> usize {
        let mut at = 0;
        loop {
            let rest = fresh.get_mut(at..).unwrap_or_default();
            if rest.is_empty() {
                return at;
            }
            match self.place {
                Place::Body(left) => {
                    let skipped = left.min(rest.len());
                    at += skipped;
                    self.place = if left == skipped { Place::Head } else { Place::Body(left - skipped) };
                }
                Place::Head => {
                    let Some((head, data)) = rest.split_first_chunk_mut::<HEAD>() else {
                        self.gathered = rest.len();
                        self.head.iter_mut().zip(rest).for_each(|(kept, byte)| *kept = *byte);
                        return at;
                    };
                    *head = self.begin(*head, data.len());
                    at += HEAD;
                    if let Place::Part { rest, flags, .. } = self.place {
                        if !data.is_empty() {
                            self.head = *head;
                            self.next_part(rest, flags);
                        }
                        return at + data.len();
                    }
                }
                // Its bytes are read on their own.
                Place::Part { .. } => return at,
            }
        }
    }

    /// Begins a frame of which so much data is there; the head to pass on.
    fn begin(&mut self, head: [u8; HEAD], there: usize) -> [u8; HEAD] {
        let [a, b, c, kind, flags, ..] = head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        if kind != DATA || flags & PADDED != 0 || !(MOST + 1..=ALLOWED).contains(&length) || length <= there {
            self.place = if length == 0 { Place::Head } else { Place::Body(length) };
            return head;
        }
        let first = if there == 0 { MOST } else { there };
        self.place = Place::Part { left: first - there, rest: length - first, flags };
        if there == 0 {
            self.head = head;
        }
        with(head, first, flags & !END_STREAM)
    }

    /// Makes the head of the next part of a large frame ready.
    fn next_part(&mut self, rest: usize, flags: u8) {
        let part = rest.min(MOST);
        let is_last = part == rest;
        self.place = if is_last { Place::Body(part) } else { Place::Part { left: part, rest: rest - part, flags } };
        self.head = with(self.head, part, if is_last { flags } else { flags & !END_STREAM });
        self.passed = Some(0);
    }
}

/// A head with another length and other flags.
fn with(head: [u8; HEAD], length: usize, flags: u8) -> [u8; HEAD] {
    let [_, _, _, kind, _, stream @ ..] = head;
    let [.., a, b, c] = length.to_be_bytes();
    let [s, t, u, v] = stream;
    [a, b, c, kind, flags, s, t, u, v]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::future::poll_fn;

    use super::*;

    /// A connection that gives so many bytes at a time, and pauses between.
    struct Trickle {
        bytes: Vec<u8>,
        at: usize,
        sizes: Vec<usize>,
        turn: usize,
    }

    impl AsyncRead for Trickle {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            self.turn += 1;
            if self.turn.is_multiple_of(3) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let size = self.sizes[self.turn % self.sizes.len()].min(to.remaining()).min(self.bytes.len() - self.at);
            to.put_slice(&self.bytes[self.at..self.at + size]);
            self.at += size;
            Poll::Ready(Ok(()))
        }
    }

    /// A frame: type, flags, stream, body.
    type Frame = (u8, u8, u8, Vec<u8>);

    fn written(frames: &[Frame]) -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for (kind, flags, stream, body) in frames {
            bytes.extend(with([0, 0, 0, *kind, 0, 0, 0, 0, *stream], body.len(), *flags));
            bytes.extend(body);
        }
        bytes
    }

    fn read(mut bytes: &[u8]) -> Vec<Frame> {
        bytes = &bytes[PREFACE..];
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let length = usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
            frames.push((bytes[3], bytes[4], bytes[8], bytes[HEAD..HEAD + length].to_vec()));
            bytes = &bytes[HEAD + length..];
        }
        frames
    }

    /// Frames of data that follow each other on a stream, laid together as one.
    fn joined(frames: Vec<Frame>) -> Vec<Frame> {
        let mut joined: Vec<Frame> = Vec::new();
        for frame in frames {
            match joined.last_mut() {
                Some((DATA, flags, stream, body))
                    if frame.0 == DATA
                        && *stream == frame.2
                        && (*flags | frame.1) & PADDED == 0
                        && *flags & END_STREAM == 0 =>
                {
                    *flags = frame.1;
                    body.extend(frame.3);
                }
                _ => joined.push(frame),
            }
        }
        joined
    }

    /// What comes of bytes that are read by buffers of a size.
    async fn passed_on(bytes: Vec<u8>, sizes: Vec<usize>, room: usize) -> Vec<u8> {
        let mut from = Trickle { bytes, at: 0, sizes, turn: 0 };
        let (mut frames, mut all, mut buffer) = (SmallFrames::default(), Vec::new(), vec![0; room]);
        loop {
            let mut to = ReadBuf::new(&mut buffer);
            poll_fn(|context| frames.poll_read(Pin::new(&mut from), context, &mut to)).await.unwrap();
            if to.filled().is_empty() {
                return all;
            }
            all.extend_from_slice(to.filled());
        }
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let size = prop_oneof![0..40_usize, MOST - 2..MOST + 3, Just(16_384), 0..40_000_usize];
        let kind = prop_oneof![3 => Just(DATA), 1 => 1..10_u8];
        let flags = prop_oneof![4 => Just(0), 1 => Just(END_STREAM), 1 => Just(PADDED)];
        (kind, flags, 1..3_u8, size, any::<u8>()).prop_map(|(kind, flags, stream, size, seed)| {
            let body = (0..=250_u8).map(|at| seed.wrapping_add(at)).cycle().take(size).collect();
            (kind, flags, stream, body)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn all_is_passed_on_in_small_frames_however_it_comes(
            frames in prop::collection::vec(frame(), 0..6),
            sizes in prop::collection::vec(prop_oneof![1..20_usize, 1..20_000_usize], 1..4),
            room in prop_oneof![1..30_usize, Just(8192), 1..9000_usize],
        ) {
            let bytes = written(&frames);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let sizes = if bytes.len() > 5_000 { sizes.iter().map(|size| size + 50).collect() } else { sizes };
            let room = if bytes.len() > 5_000 { room + 50 } else { room };
            let passed = read(&runtime.block_on(passed_on(bytes, sizes, room)));
            for (kind, flags, _, body) in &passed {
                // What was there when its head was read is passed on with it, which is as much as there was room for.
                let is_cut = *kind == DATA && flags & PADDED == 0 && body.len() <= ALLOWED;
                prop_assert!(!is_cut || body.len() <= MOST.max(room));
            }
            prop_assert_eq!(joined(passed), joined(frames));
        }
    }

    #[tokio::test]
    async fn a_connection_that_ends_within_a_frame_ends() {
        let whole = written(&[(DATA, 0, 1, vec![7; 20_000])]);
        for length in [0, 3, 24, 30, 33, 34, 12_000] {
            let passed = passed_on(whole[..length].to_vec(), vec![100], 8192).await;
            assert!(passed.len() <= length + 2 * HEAD && passed.len() + HEAD > length, "{length}");
        }
    }
}
