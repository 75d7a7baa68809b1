//! weightcast: reference server and client session as state machines (pure)

#![forbid(unsafe_code)]
