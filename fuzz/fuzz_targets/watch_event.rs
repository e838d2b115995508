//! Watch events, as JSON and in binary form.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::watch_event::run(data));
