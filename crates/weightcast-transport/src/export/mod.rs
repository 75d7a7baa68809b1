//! What a process serves: regions under random ids, each with a fence word and perhaps a note; and the
//! grants by whose leave others write into its memory.

mod fence_word;
pub(crate) mod grant;
mod grants;
pub(crate) mod lending;
pub(crate) mod note;
pub(crate) mod notes;
pub(crate) mod served;
pub(crate) mod shared_word;
pub(crate) mod table;

// Where the fence word finds its atomics: `weightcast-loom` lends it others.
use std::sync::atomic;

const _: () = assert!(
    fence_word::FENCED == crate::base::id::FENCED_WORD,
    "no export has the id that the word of a fenced export holds"
);
