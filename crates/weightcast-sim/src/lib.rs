//! weightcast: a virtual cluster that drives the real protocol

#![forbid(unsafe_code)]
