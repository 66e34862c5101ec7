//! libFuzzer for the reader `wire_mailgun`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("wire_mailgun", bytes).err(), None);
});
