//! For tests of machines: what a machine forgets that is stored as a recording stores it.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::recording::coding::{append, take};

/// The value, written and read again.
pub(crate) fn stored<T: Serialize + DeserializeOwned>(value: &T) -> T {
    let mut bytes = Vec::new();
    append(value, &mut bytes, usize::MAX).expect("there is no limit");
    take(&mut &bytes[..]).expect("it was written here")
}

/// Plays a machine twice, once with each state stored and read again; both say the same. What the machine wants has to
/// be taken before that: outputs are not stored.
pub(crate) fn plays_on_alike<M, I, O>(machine: M, inputs: &[I], play: impl Fn(&mut M, I) -> O)
where
    M: Clone + Serialize + DeserializeOwned,
    I: Clone,
    O: PartialEq + Debug,
{
    let (mut plain, mut written) = (machine.clone(), machine);
    for (number, input) in inputs.iter().enumerate() {
        written = stored(&written);
        let says = play(&mut written, input.clone());
        assert_eq!(says, play(&mut plain, input.clone()), "input {number}");
    }
}
