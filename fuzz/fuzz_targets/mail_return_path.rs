//! libFuzzer for the reader `mail_return_path`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("mail_return_path", bytes).err(), None);
});
