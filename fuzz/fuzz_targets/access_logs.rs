//! Access logs that Envoy streams to the agent.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::access_logs::run(data));
