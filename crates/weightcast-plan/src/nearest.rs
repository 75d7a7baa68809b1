//! Names that look like a name, for error messages.

/// How many names are suggested.
const SUGGESTED: usize = 3;

/// The up to three candidates nearest to `name`. One that differs only by a prefix (`model.`) is
/// nearest of all; the others rank by edit distance, and none is further than half the name.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<String> {
    let letters = histogram(name);
    let mut best: Vec<(usize, &str)> = Vec::new();
    for candidate in candidates {
        let worst = match best.get(SUGGESTED - 1) {
            Some(&(distance, _)) => distance,
            None => name.len() / 2 + 1,
        };
        let distance = if prefixed(name, candidate) {
            0
        } else if unlike(&letters, &histogram(candidate)) >= worst {
            continue; // cheaper than the real distance, and never above it
        } else {
            edits(name.as_bytes(), candidate.as_bytes()).max(1)
        };
        if distance < worst {
            let at = best.partition_point(|&(other, _)| other <= distance);
            best.insert(at, (distance, candidate));
            best.truncate(SUGGESTED);
        }
    }
    best.into_iter().map(|(_, candidate)| candidate.to_owned()).collect()
}

/// What PEFT puts into the name of a weight that it wraps.
const WRAPPED: &str = ".base_layer.";

/// Whether one name is the other behind a dotted prefix, wrapped by an adapter or not.
fn prefixed(a: &str, b: &str) -> bool {
    if a.contains(WRAPPED) != b.contains(WRAPPED) {
        return prefixed(&a.replace(WRAPPED, "."), &b.replace(WRAPPED, "."));
    }
    let (long, short) = if a.len() > b.len() { (a, b) } else { (b, a) };
    long.strip_suffix(short).is_some_and(|prefix| prefix.ends_with('.'))
}

fn histogram(name: &str) -> [u8; 128] {
    let mut count = [0u8; 128];
    for byte in name.bytes() {
        let slot = &mut count[usize::from(byte & 127)];
        *slot = slot.saturating_add(1);
    }
    count
}

/// A lower bound of the edit distance: letters that only one of the two has.
fn unlike(a: &[u8; 128], b: &[u8; 128]) -> usize {
    let (mut more, mut less) = (0, 0);
    for (&x, &y) in a.iter().zip(b) {
        more += usize::from(x.saturating_sub(y));
        less += usize::from(y.saturating_sub(x));
    }
    more.max(less)
}

/// Levenshtein's distance, one row at a time.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_edits() {
        assert_eq!(edits(b"kitten", b"sitting"), 3);
        assert_eq!(edits(b"", b"abc"), 3);
    }

    #[test]
    fn prefers_a_missing_prefix() {
        let names = ["norm.weights", "model.norm.weight", "norm.weighty"];
        assert_eq!(nearest("norm.weight", names.into_iter())[0], "model.norm.weight");
    }

    #[test]
    fn suggests_nothing_far_away() {
        assert!(nearest("lm_head", ["embed_tokens"].into_iter()).is_empty());
    }
}
