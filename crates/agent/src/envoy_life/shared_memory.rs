//! The shared memory by which Envoys of a hot restart exclude each other.
//!
//! A starting Envoy sets a flag, and clears it when its workers have started. If it is killed
//! before, the flag stays, and Envoy refuses every later start: "previous envoy process is still
//! initializing". The agent knows that the process is dead, and clears the flag in its place.
//!
//! ```text
//! size: u64 │ version: u64 │ two mutexes │ flags: u64      (source/server/hot_restart_impl.h)
//! ```

use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

/// The version of the layout: the first part of `envoy --hot-restart-version`.
const VERSION: u64 = 11;
/// The flag of an Envoy that has not started its workers yet.
const INITIALIZING: u64 = 1;
/// The length of a number in bytes.
const WORD: usize = size_of::<u64>();
/// More than Envoy's segment has in bytes.
const MAX_LENGTH: u64 = 4096;

/// The segments of Envoys, by their base ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// Where Envoy's `shm_open` puts them.
    pub folder: PathBuf,
}

impl Default for SharedMemory {
    /// The folder of glibc and of Linux.
    fn default() -> Self {
        let folder = "/dev/shm".into();
        Self { folder }
    }
}

impl SharedMemory {
    fn path(&self, base_id: u32) -> PathBuf {
        let scaled = u64::from(base_id) * 10;
        self.folder.join(format!("envoy_shared_memory_{scaled}"))
    }

    /// Clears the flag of an Envoy that was killed before its workers started.
    ///
    /// # Errors
    /// If the segment is not there, or has another layout.
    pub(super) fn clear_initializing(&self, base_id: u32) -> Result<()> {
        let path = self.path(base_id);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(&path)?;
        let length = file.metadata()?.len();
        let other_layout = || {
            let reason = format!("{} has an unknown layout", path.display());
            Error::new(ErrorKind::InvalidData, reason)
        };
        if length > MAX_LENGTH {
            return Err(other_layout());
        }

        let read = |offset: u64| {
            let mut word = [0; WORD];
            file.read_exact_at(&mut word, offset)?;
            Ok::<u64, Error>(u64::from_ne_bytes(word))
        };
        if read(0)? != length || read(WORD as u64)? != VERSION {
            return Err(other_layout());
        }

        let offset = length.checked_sub(WORD as u64).ok_or_else(other_layout)?;
        let flags = read(offset)? & !INITIALIZING;
        file.write_all_at(&flags.to_ne_bytes(), offset)
    }

    /// Removes the segment of Envoys that have all exited.
    pub(super) fn remove(&self, base_id: u32) {
        let path = self.path(base_id);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::debug!(path = %path.display(), %error, "failed to remove Envoy's shared memory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory in a folder, and the path of the segment of base id 7.
    fn memory(folder: &tempfile::TempDir) -> (SharedMemory, PathBuf) {
        let folder = folder.path().to_owned();
        let path = folder.join("envoy_shared_memory_70");
        (SharedMemory { folder }, path)
    }

    /// A segment as Envoy 1.40 has it on `x86_64`.
    fn segment(version: u64, flags: u64) -> Vec<u8> {
        let mut bytes = vec![0; 104];
        bytes[..8].copy_from_slice(&104_u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&version.to_ne_bytes());
        bytes[96..].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn only_the_flag_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let (memory, path) = memory(&folder);
        std::fs::write(&path, segment(11, 0b101)).unwrap();

        memory.clear_initializing(7).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), segment(11, 0b100));

        memory.remove(7);
        assert!(!path.exists());
        memory.remove(7);
    }

    #[test]
    fn a_segment_of_another_layout_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let (memory, path) = memory(&folder);
        assert!(memory.clear_initializing(7).is_err());

        for bytes in [segment(12, 1), vec![0; 104], vec![1; 3]] {
            std::fs::write(&path, &bytes).unwrap();
            assert!(memory.clear_initializing(7).is_err());
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }
}
