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

    /// Levenshtein's distance by its definition.
    fn distance(a: &[u8], b: &[u8]) -> usize {
        match (a, b) {
            ([], rest) | (rest, []) => rest.len(),
            ([x, a_rest @ ..], [y, b_rest @ ..]) if x == y => distance(a_rest, b_rest),
            ([_, a_rest @ ..], [_, b_rest @ ..]) => {
                let either = distance(a_rest, b).min(distance(a, b_rest));
                1 + either.min(distance(a_rest, b_rest))
            }
        }
    }

    /// Every candidate measured in full; the best three of those that are near enough.
    fn plainly(name: &str, candidates: &[&str]) -> Vec<String> {
        let bare = |name: &str| name.replace(WRAPPED, ".");
        let behind = |a: &str, b: &str| a.ends_with(&format!(".{b}"));
        let measured = |candidate: &&&str| {
            let wrapped = name.contains(WRAPPED) != candidate.contains(WRAPPED);
            let (a, b) = match wrapped {
                true => (bare(name), bare(candidate)),
                false => (name.to_owned(), (**candidate).to_owned()),
            };
            match a != b && (behind(&a, &b) || behind(&b, &a)) {
                true => 0,
                false => distance(name.as_bytes(), candidate.as_bytes()).max(1),
            }
        };
        let mut ranked: Vec<&&str> = candidates.iter().collect();
        ranked.retain(|candidate| measured(candidate) <= name.len() / 2);
        ranked.sort_by_key(measured);
        ranked.into_iter().take(3).map(|&candidate| candidate.to_owned()).collect()
    }

    #[test]
    fn skipping_what_cannot_be_near_changes_no_answer() {
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let mut found = [0; 4];
        for _ in 0..3_000 {
            let mut word = || -> String {
                let mut word: String =
                    (0..1 + below(6)).map(|_| ["a", "b", "c", "."][below(4) as usize]).collect();
                if below(8) == 0 {
                    word.insert_str((below(word.len() as u64 + 1)) as usize, WRAPPED);
                }
                word
            };
            let name = word();
            let mut words: Vec<String> = (0..6).map(|_| word()).collect();
            words.push(format!("model.{name}"));
            let words: Vec<&str> = words[below(2) as usize..].iter().map(String::as_str).collect();
            let words = &words[..1 + below(words.len() as u64) as usize];
            if name.len() + words.iter().map(|w| w.len()).max().unwrap_or(0) > 26 {
                continue; // by its definition a distance takes long
            }
            let answer = nearest(&name, words.iter().copied());
            assert_eq!(answer, plainly(&name, words), "{name:?} in {words:?}");
            found[answer.len()] += 1;
        }
        assert!(found.iter().all(|&times| times > 50), "{found:?}");
    }

    #[test]
    fn suggests_nothing_far_away() {
        assert!(nearest("lm_head", ["embed_tokens"].into_iter()).is_empty());
    }
}
