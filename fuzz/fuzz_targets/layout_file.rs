#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weightcast_fuzz::layout_file(bytes));
