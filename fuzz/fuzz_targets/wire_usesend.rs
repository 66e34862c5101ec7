//! libFuzzer for the reader `wire_usesend`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("wire_usesend", bytes).err(), None);
});
