//! gRPC messages of discovery streams, split at any place.

#![no_main]

#[path = "../entries/grpc_frames.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
