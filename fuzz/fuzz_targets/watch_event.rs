//! Watch events, as JSON and in binary form.

#![no_main]

#[path = "../entries/watch_event.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
