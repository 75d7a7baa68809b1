//! A store: entries by id.
//!
//! The server hands ids out, puts them into timers, edges and lists, and takes them out of these before it forgets the
//! entry. An id that comes from there has its entry: [`Store::of`] says so in one place. Ids that come from outside, or
//! that may have been forgotten, are asked for with `get`.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

/// Entries by id; a map, and the look-up of what must be there.
#[derive(Clone, Debug)]
pub(in crate::server) struct Store<K, V>(BTreeMap<K, V>);

impl<K, V> Default for Store<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> Store<K, V> {
    /// The entry of an id that was not forgotten.
    #[track_caller]
    pub(in crate::server) fn of<Q: Ord + Debug + ?Sized>(&self, id: &Q) -> &V
    where
        K: Borrow<Q>,
    {
        self.0.get(id).unwrap_or_else(|| panic!("{id:?} was forgotten while somebody names it"))
    }

    /// The same, to change it.
    #[track_caller]
    pub(in crate::server) fn of_mut<Q: Ord + Debug + ?Sized>(&mut self, id: &Q) -> &mut V
    where
        K: Borrow<Q>,
    {
        self.0.get_mut(id).unwrap_or_else(|| panic!("{id:?} was forgotten while somebody names it"))
    }
}

impl<K, V> Deref for Store<K, V> {
    type Target = BTreeMap<K, V>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K, V> DerefMut for Store<K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
