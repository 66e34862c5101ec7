//! libFuzzer for the reader `api_send`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("api_send", bytes).err(), None);
});
