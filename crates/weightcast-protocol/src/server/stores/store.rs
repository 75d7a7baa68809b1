//! A store: entries by id.
//!
//! The server hands ids out, puts them into timers, edges and lists, and takes them out of these
//! before it forgets the entry. So an id from a timer, edge or list has its entry: [`Store::of`]
//! relies on that, and panics otherwise. Ids that come from outside, or that may have been
//! forgotten, are looked up with [`Store::get`]. Only tests index a store.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::{Deserialize, Serialize};

/// Entries by id, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "K: Deserialize<'de> + Ord, V: Deserialize<'de>"))]
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

/// Whether an id is known, and what comes and goes.
impl<K: Ord, V> Store<K, V> {
    /// The entry of an id, if there is one.
    pub(in crate::server) fn get<Q: Ord + ?Sized>(&self, id: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(id)
    }

    /// The same, to change it.
    pub(in crate::server) fn get_mut<Q: Ord + ?Sized>(&mut self, id: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.get_mut(id)
    }

    pub(in crate::server) fn contains<Q: Ord + ?Sized>(&self, id: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(id)
    }

    pub(in crate::server) fn insert(&mut self, id: K, entry: V) {
        self.0.insert(id, entry);
    }

    /// Forgets an entry, and returns it.
    pub(in crate::server) fn remove<Q: Ord + ?Sized>(&mut self, id: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.remove(id)
    }

    /// Forgets the entries that are not kept.
    pub(in crate::server) fn retain(&mut self, kept: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain(kept);
    }

    pub(in crate::server) fn clear(&mut self) {
        self.0.clear();
    }
}

/// All entries, in the order of their ids.
impl<K, V> Store<K, V> {
    pub(in crate::server) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::server) fn ids(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    pub(in crate::server) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }

    pub(in crate::server) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut()
    }

    pub(in crate::server) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }

    pub(in crate::server) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut()
    }
}

#[cfg(test)]
impl<K: Borrow<Q> + Ord, Q: Ord + ?Sized, V> std::ops::Index<&Q> for Store<K, V> {
    type Output = V;
    fn index(&self, id: &Q) -> &V {
        &self.0[id]
    }
}

#[cfg(test)]
impl<K, V> Store<K, V> {
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
