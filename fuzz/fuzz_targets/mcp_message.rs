//! libFuzzer for the reader `mcp_message`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert_eq!(mailonce_sim::fuzz::run("mcp_message", bytes).err(), None);
});
