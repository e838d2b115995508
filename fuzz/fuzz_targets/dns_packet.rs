//! Packets that applications send to the DNS server.

#![no_main]

#[path = "../entries/dns_packet.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
