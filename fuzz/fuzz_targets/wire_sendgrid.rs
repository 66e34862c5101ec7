//! libFuzzer for the reader `wire_sendgrid`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("wire_sendgrid", bytes).err(), None);
});
