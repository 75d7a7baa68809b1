//! The tensors of a case, their layouts, and memory whose every byte is known.

pub(crate) mod cases;
pub(crate) mod layouts;
pub(crate) mod memory;
pub(crate) mod qwen;
