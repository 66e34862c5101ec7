//! libFuzzer for the reader `core_digest`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("core_digest", bytes).err(), None);
});
