//! libFuzzer for the reader `wire_ses`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("wire_ses", bytes).err(), None);
});
