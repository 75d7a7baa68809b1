//! The attacker: both ports spoken without the library, so that nothing stops a lie at its source.
//!
//! [`wire`] has the generated messages, [`control`] a client of the control port, [`data`] a reader of
//! data ports, [`port`] a data port that lies, [`forge`] what is made up.

pub(crate) mod control;
pub(crate) mod data;
pub(crate) mod forge;
pub(crate) mod port;
pub(crate) mod runtime;
pub(crate) mod wire;
