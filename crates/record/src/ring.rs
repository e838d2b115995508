//! The segments of a recording on disk, bounded in size: the oldest are deleted first.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::read::{segment_name, segments};

/// A segment grows to this fraction of the maximum size before the next is started, if its initial
/// state is small.
const MIN_SEGMENTS: u64 = 8;

/// Segments of one directory, of which the last is written to.
#[derive(Debug)]
pub(crate) struct Ring {
    dir: PathBuf,
    max: u64,
    /// The finished segments with their bytes, the oldest first.
    older: VecDeque<(PathBuf, u64)>,
    current: Option<Current>,
    /// The number of the next segment.
    next: u64,
}

/// The open segment.
#[derive(Debug)]
struct Current {
    file: BufWriter<File>,
    path: PathBuf,
    bytes: u64,
    /// The size of its initial state.
    begun: u64,
}

impl Ring {
    /// The ring of a directory, which is created if missing. Existing segments are part of it.
    pub(crate) fn open(dir: &Path, max: u64) -> io::Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        let found = segments(dir)?;
        let next = found.last().map_or(1, |(number, _)| number + 1);
        let size = |path: PathBuf| Some((std::fs::metadata(&path).ok()?.len(), path));
        let older = found
            .into_iter()
            .filter_map(|(_, path)| size(path))
            .map(|(bytes, path)| (path, bytes))
            .collect();

        Ok(Self {
            dir: dir.to_owned(),
            max,
            older,
            current: None,
            next,
        })
    }

    /// The number of the next segment.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Starts a segment with the output of `write`. A segment that fails is not part of the ring.
    pub(crate) fn begin(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        self.finish()?;
        let path = self.dir.join(segment_name(self.next));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        self.next += 1;

        self.current = Some(Current {
            file: BufWriter::new(file),
            path: path.clone(),
            bytes: 0,
            begun: 0,
        });

        let written = write(&mut InitialStateWriter(self)).and_then(|()| self.flush());
        match (written, &mut self.current) {
            (Ok(()), Some(current)) => current.begun = current.bytes,
            (Ok(()), None) => {}
            (Err(error), _) => {
                self.current = None;
                // It is useless, and takes space if the disk is full.
                _ = std::fs::remove_file(&path);
                return Err(error);
            }
        }

        Ok(())
    }

    /// Appends to the last segment.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_within(bytes, self.max)
    }

    /// Whether the last segment is full.
    pub(crate) fn is_full(&self) -> bool {
        self.current.as_ref().is_some_and(|current| {
            let most = (self.max / MIN_SEGMENTS)
                .max(2 * current.begun)
                .min(self.max / 4 * 3);
            current.bytes >= most
        })
    }

    /// Flushes buffered bytes to the operating system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.current
            .as_mut()
            .map_or(Ok(()), |current| current.file.flush())
    }

    /// Ends the last segment.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let Some(mut current) = self.current.take() else {
            return Ok(());
        };
        let flushed = current.file.flush();
        // Discards unwritten bytes, which dropping the writer would try to write again.
        let (_, _) = current.file.into_parts();
        self.older.push_back((current.path, current.bytes));
        flushed
    }

    /// Writes at most this number of bytes to the last segment, after making room for them.
    fn write_within(&mut self, bytes: &[u8], most: u64) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Err(io::ErrorKind::NotConnected.into());
        };

        let more = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let after = current.bytes.saturating_add(more);
        if after > most {
            let reason = format!(
                "the current state needs more than {most} bytes; increase --record-max-size"
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, reason));
        }

        while self.older.iter().map(|(_, bytes)| bytes).sum::<u64>() + after > self.max {
            let Some((path, _)) = self.older.pop_front() else {
                break;
            };
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Err(_) | Ok(()) => {}
            }
        }

        current.file.write_all(bytes)?;
        current.bytes = after;
        Ok(())
    }
}

/// Writes the initial state of a segment: at most half of the total size, so that events fit after
/// it.
struct InitialStateWriter<'a>(&'a mut Ring);

impl Write for InitialStateWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_within(bytes, self.0.max / 2)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(dir: &Path) -> Vec<u64> {
        segments(dir)
            .unwrap()
            .iter()
            .map(|(_, path)| std::fs::metadata(path).unwrap().len())
            .collect()
    }

    #[test]
    fn the_oldest_segments_are_deleted_when_full() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("made");
        let mut ring = Ring::open(&inner, 800).unwrap();

        for _ in 0..40 {
            ring.begin(|out| out.write_all(&[b'a'; 40])).unwrap();
            while !ring.is_full() {
                ring.append(&[b'b'; 30]).unwrap();
            }
            ring.flush().unwrap();
            assert!(
                sizes(&inner).iter().sum::<u64>() <= 800,
                "{:?}",
                sizes(&inner)
            );
        }

        assert!(sizes(&inner).len() >= 4, "{:?}", sizes(&inner));
        ring.finish().unwrap();
        let numbers: Vec<u64> = segments(&inner)
            .unwrap()
            .into_iter()
            .map(|(number, _)| number)
            .collect();
        assert_eq!(numbers.last(), Some(&40));

        // Another run goes on, and within the same bounds.
        let mut ring = Ring::open(&inner, 400).unwrap();
        ring.begin(|out| out.write_all(&[b'a'; 200])).unwrap();
        assert!(
            sizes(&inner).iter().sum::<u64>() <= 400,
            "{:?}",
            sizes(&inner)
        );

        assert_eq!(
            segments(&inner).unwrap().last().map(|(number, _)| *number),
            Some(41)
        );
    }

    #[test]
    fn a_segment_that_cannot_be_created_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = Ring::open(dir.path(), 100).unwrap();
        let error = ring.begin(|out| out.write_all(&[b'a'; 51])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(sizes(dir.path()), Vec::<u64>::new());
        ring.begin(|out| out.write_all(&[b'a'; 50])).unwrap();
        assert_eq!(
            ring.append(&[b'a'; 51]).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
    }
}
