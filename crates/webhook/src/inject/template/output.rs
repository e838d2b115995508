//! The output of a template, with a size limit.

use std::fmt;

/// The maximum output of one template or function, in bytes. Istio's longest template writes about
/// ten thousand bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// A string buffer with a size limit.
#[derive(Debug, Default)]
pub(super) struct Output(String);

impl Output {
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

impl fmt::Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len().saturating_add(text.len()) > MAX_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
