//! A tensor cut where the set of its holders changes, over all replicas that are compared.

use std::borrow::Borrow;

use weightcast_plan::Slice;

/// An entry of one shard's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeldEntry {
    /// Number of the shard among all shards of all replicas.
    pub(super) holder: usize,
    /// Number of the entry in its layout.
    pub(super) entry: u32,
}

/// A box of a tensor, and all shards that hold the whole of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Atom {
    pub(super) slice: Slice,
    pub(super) held: Vec<HeldEntry>,
}

/// Cuts what is held into disjoint boxes, each with the same holders throughout. No holder may hold
/// an element twice.
pub(super) fn atoms<S: Borrow<Slice>>(
    boxes: impl IntoIterator<Item = (HeldEntry, S)>,
) -> Vec<Atom> {
    let mut atoms: Vec<Atom> = Vec::new();
    for (held, slice) in boxes.into_iter().filter(|(_, slice)| !slice.borrow().is_empty()) {
        let slice: &Slice = slice.borrow();
        let mut rest = vec![slice.clone()];
        let mut cut = Vec::with_capacity(atoms.len() + 1);
        for atom in atoms {
            let Some(both) = atom.slice.intersect(slice) else {
                cut.push(atom);
                continue;
            };
            let alone = atom.slice.subtract(&both).into_iter();
            cut.extend(alone.map(|slice| Atom { slice, held: atom.held.clone() }));
            rest = rest.iter().flat_map(|piece| piece.subtract(&both)).collect();
            let mut holders = atom.held;
            holders.push(held);
            cut.push(Atom { slice: both, held: holders });
        }
        cut.extend(rest.into_iter().map(|slice| Atom { slice, held: vec![held] }));
        atoms = cut;
    }
    atoms.sort_unstable_by(|a, b| a.slice.cmp(&b.slice));
    atoms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_against_columns_and_a_copy() {
        let at = |holder| HeldEntry { holder, entry: 0 };
        let rows = [Slice::new([0, 0], [2, 4]), Slice::new([2, 0], [2, 4])];
        let columns = [Slice::new([0, 0], [4, 3]), Slice::new([0, 3], [4, 1])];
        let boxes =
            [(at(0), &rows[0]), (at(1), &rows[1]), (at(2), &columns[0]), (at(3), &columns[1])];
        let copy = (at(4), &columns[1]);
        let atoms = atoms(boxes.into_iter().chain([copy]));
        let expected = [
            ([0, 0], [2, 3], vec![0, 2]),
            ([0, 3], [2, 1], vec![0, 3, 4]),
            ([2, 0], [2, 3], vec![1, 2]),
            ([2, 3], [2, 1], vec![1, 3, 4]),
        ];
        let seen = atoms.iter().map(|atom| {
            let holders: Vec<usize> = atom.held.iter().map(|held| held.holder).collect();
            (atom.slice.clone(), holders)
        });
        let expected = expected.map(|(start, len, held)| (Slice::new(start, len), held));
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }
}
