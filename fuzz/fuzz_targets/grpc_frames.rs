//! gRPC messages of discovery streams, split at any place.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::grpc_frames::run(data));
