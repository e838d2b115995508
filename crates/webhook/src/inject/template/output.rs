//! What a template writes, up to a limit.

use std::fmt;

/// The most that one template or one function may write, in bytes. Istio's longest template makes some ten thousand.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// A text that refuses to grow without end.
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
