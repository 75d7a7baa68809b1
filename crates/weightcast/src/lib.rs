//! weightcast: what a Rust user holds, ShardHandle and serve()

#![forbid(unsafe_code)]
