//! Access logs that Envoy streams to the agent.

#![no_main]

#[path = "../entries/access_logs.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
