//! libFuzzer for the reader `core_cursor`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("core_cursor", bytes).err(), None);
});
