//! libFuzzer for the reader `api_dialect`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("api_dialect", bytes).err(), None);
});
