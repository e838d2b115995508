//! Packets that applications send to the DNS server.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| navarch_fuzz_targets::dns_packet::run(data));
