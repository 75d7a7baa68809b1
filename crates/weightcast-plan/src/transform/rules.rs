//! Which tensors are changed, and how.

use crate::dtype::DType;
use crate::quantise::Formula;

/// What becomes of a tensor's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transform {
    /// Rounded to nearest, ties to even: F32, BF16 or F16 of any of these.
    Cast(DType),
    /// FP8 codes, and a tensor of scales.
    Fp8(Fp8),
}

/// FP8 block quantisation of matrices (the last two dimensions).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fp8 {
    /// How a scale comes from a block's largest magnitude.
    pub formula: Formula,
    /// Rows and columns of a block; the last ones of a matrix are ragged.
    pub block: (u64, u64),
    /// `F32`, or `F8_E8M0` for formulas whose scales are powers of two.
    pub scales: DType,
    /// What the scales' name has behind the weight's.
    pub suffix: String,
}

impl Fp8 {
    /// Blocks of 128 x 128 with F32 scales called `_scale_inv`: the form of DeepSeek-V3's checkpoints.
    pub fn new(formula: Formula) -> Self {
        Self { formula, block: (128, 128), scales: DType::F32, suffix: "_scale_inv".to_owned() }
    }

    /// Name of the scales of the weight of this name.
    pub fn scales_of(&self, weight: &str) -> String {
        format!("{weight}{}", self.suffix)
    }
}

/// A transform of all tensors whose name fits a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// A name in which `*` stands for anything, or nothing.
    pub names: String,
    /// What becomes of them; none: they stay as they are, whatever later rules say.
    pub transform: Option<Transform>,
}

/// Rules, of which the first that fits a name decides. What none fits stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// What becomes of the tensor of this name.
    pub fn of(&self, name: &str) -> Option<&Transform> {
        self.0.iter().find(|rule| fits(&rule.names, name))?.transform.as_ref()
    }

    /// Patterns of transforms that fit none of these names: typing errors, most often.
    pub fn unused<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Vec<&str> {
        let fits_none = |rule: &&Rule| !names.clone().any(|name| fits(&rule.names, name));
        let unused = |rule: &&Rule| rule.transform.is_some() && fits_none(rule);
        self.0.iter().filter(unused).map(|rule| rule.names.as_str()).collect()
    }
}

/// Whether a name fits a pattern. Each `*` takes the shortest text that lets the next part follow:
/// if any choice fits, that one does.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    let mut parts = rest.split('*').collect::<Vec<_>>();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let all = ["*", "model.*.weight", "*q_proj*", "model.layers.0.q_proj.weight", "*.weight*"];
        assert!(all.iter().all(|pattern| fits(pattern, "model.layers.0.q_proj.weight")));
        let none =
            ["", "model", "*k_proj*", "model.*.weight_", "*weight*weight", "model.*.0.q*.0.*"];
        assert!(!none.iter().any(|pattern| fits(pattern, "model.layers.0.q_proj.weight")));
        assert!(
            fits("a*ab", "aab") && !fits("a*ab", "ab") && fits("**", "") && fits("a*b*c", "abbc")
        );
    }

    /// Against all ways to cut.
    #[test]
    fn patterns_fit_as_a_search_of_all_choices_says() {
        fn search(pattern: &[u8], name: &[u8]) -> bool {
            match pattern.split_first() {
                None => name.is_empty(),
                Some((b'*', rest)) => (0..=name.len()).any(|n| search(rest, &name[n..])),
                Some((byte, rest)) => name.first() == Some(byte) && search(rest, &name[1..]),
            }
        }
        let words = |letters: &'static [u8], most: u32| {
            (0..=most).flat_map(move |len| {
                (0..letters.len().pow(len)).map(move |mut n| {
                    let mut word = String::new();
                    for _ in 0..len {
                        word.push(letters[n % letters.len()] as char);
                        n /= letters.len();
                    }
                    word
                })
            })
        };
        for pattern in words(b"ab*", 5) {
            for name in words(b"ab", 5) {
                let expected = search(pattern.as_bytes(), name.as_bytes());
                assert_eq!(fits(&pattern, &name), expected, "{pattern} {name}");
            }
        }
    }

    #[test]
    fn the_first_rule_decides() {
        let rule = |names: &str, transform| Rule { names: names.to_owned(), transform };
        let fp8 = Transform::Fp8(Fp8::new(Formula::DeepGemm));
        let rules = Rules(vec![
            rule("*.eh_proj.weight", None),
            rule("*_proj.weight", Some(fp8.clone())),
            rule("*", Some(Transform::Cast(DType::BF16))),
        ]);
        assert_eq!(rules.of("l.eh_proj.weight"), None);
        assert_eq!(rules.of("l.q_proj.weight"), Some(&fp8));
        assert_eq!(rules.of("norm"), Some(&Transform::Cast(DType::BF16)));
        assert_eq!(rules.unused(["norm"].into_iter()), ["*_proj.weight"]);
    }
}
