//! libFuzzer for the reader `core_address`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("core_address", bytes).err(), None);
});
