//! weightcast: the command line

#![forbid(unsafe_code)]
