#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pillarbox_fuzz_targets::page::run(data));
