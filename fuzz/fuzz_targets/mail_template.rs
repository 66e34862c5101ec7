//! libFuzzer for the reader `mail_template`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("mail_template", bytes).err(), None);
});
