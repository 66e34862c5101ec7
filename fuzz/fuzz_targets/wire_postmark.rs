//! libFuzzer for the reader `wire_postmark`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("wire_postmark", bytes).err(), None);
});
