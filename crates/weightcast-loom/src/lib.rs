//! Every order in which threads can meet at the transport's lock-free words, with loom.
//!
//! The files are those of `weightcast-transport`: they take their atomics from the module that
//! includes them. [`sound`] lends them loom's; [`relaxed`] and [`unfenced`] lend atomics with the
//! orderings taken away, and loom must find what then goes wrong: a model that never fails says
//! nothing.

#![cfg(test)]
// With other atomics they are other modules.
#![allow(clippy::duplicate_mod)]

mod fence_word;
mod relaxed;
mod sound;
mod unfenced;
mod unit;
