//! libFuzzer for the reader `hook_sendgrid`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("hook_sendgrid", bytes).err(), None);
});
