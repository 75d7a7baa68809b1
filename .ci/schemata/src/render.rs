//! Puts edits into a file's text.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use crate::{Listing, Mutant, Stretch};

/// Where in a file mutants go, and how.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Form {
    /// A statement that is left out.
    Statement,
    /// A match arm's guard: the arm is never taken.
    Guard,
    /// An expression, replaced by one of others.
    Expression,
    /// The place where a function's body begins; the replacement is a statement that leaves it.
    Body,
    /// The end of a match arm's pattern that has no guard: the arm is never taken.
    Arm,
}

/// One way to change a place.
pub(crate) struct Change {
    pub(crate) rule: &'static str,
    pub(crate) replacement: String,
}

/// All edits of a file: by place, and the enclosing ones first.
pub(crate) type Edits = BTreeMap<(usize, std::cmp::Reverse<usize>, Form), Vec<Change>>;

/// The changes of one place, numbered.
#[derive(Clone)]
struct Numbered {
    place: Range<usize>,
    form: Form,
    changes: Vec<(u32, String)>,
}

struct Writer<'a> {
    text: &'a str,
    edits: Vec<Numbered>,
    file: String,
    written: &'a mut String,
    stretches: &'a mut Vec<Stretch>,
}

/// Writes the text with its mutants, numbered from `next`; returns the first number that is free.
pub(crate) fn write(
    text: &str,
    edits: Edits,
    mut next: u32,
    without: &BTreeSet<u32>,
    path: &Path,
    written: &mut String,
    listing: &mut Listing,
) -> u32 {
    let file = path.display().to_string();
    let mut numbered = Vec::new();
    for ((from, std::cmp::Reverse(to), form), changes) in edits {
        let mut kept = Vec::new();
        for change in changes {
            let number = next;
            next += 1;
            if without.contains(&number) {
                continue;
            }
            listing.mutants.push(Mutant {
                number,
                file: file.clone(),
                line: text[..from].matches('\n').count() + 1,
                rule: change.rule,
                original: text[from..to].to_string(),
                replacement: change.replacement.clone(),
            });
            kept.push((number, change.replacement));
        }
        if !kept.is_empty() {
            numbered.push(Numbered { place: from..to, form, changes: kept });
        }
    }
    let mut writer =
        Writer { text, edits: numbered, file, written, stretches: &mut listing.stretches };
    writer.stretch(0..text.len(), 0);
    next
}

impl Writer<'_> {
    /// Writes a stretch of the text with the edits in it, from the `at`th on; returns the first edit that is not.
    fn stretch(&mut self, range: Range<usize>, mut at: usize) -> usize {
        let mut from = range.start;
        while let Some(Numbered { place, .. }) = self.edits.get(at) {
            if place.start >= range.end || place.end > range.end {
                break;
            }
            let place = place.clone();
            if place.start < from {
                at += 1;
                continue;
            }
            self.written.push_str(&self.text[from..place.start]);
            from = place.end;
            at = self.edit(at);
        }
        self.written.push_str(&self.text[from..range.end]);
        at
    }

    /// Writes one edit and those inside it.
    fn edit(&mut self, at: usize) -> usize {
        let Numbered { place, form, changes } = self.edits[at].clone();
        let start = self.written.len();
        let all: Vec<u32> = changes.iter().map(|(number, _)| *number).collect();
        let none = all
            .iter()
            .map(|number| format!("!crate::__schemata::is({number})"))
            .collect::<Vec<_>>()
            .join(" && ");
        let next = match form {
            Form::Expression => {
                self.written.push('(');
                for (number, replacement) in &changes {
                    let from = self.written.len();
                    self.written.push_str(&format!(
                        "if crate::__schemata::is({number}) {{ {replacement} }} else "
                    ));
                    self.note(from, vec![*number]);
                }
                self.written.push_str("{ ");
                let next = self.stretch(place, at + 1);
                self.written.push_str(" })");
                next
            }
            Form::Statement => {
                self.written.push_str(&format!("if {none} {{ "));
                let next = self.stretch(place, at + 1);
                self.written.push_str(" }");
                next
            }
            Form::Body => {
                for (number, replacement) in &changes {
                    let from = self.written.len();
                    self.written.push_str(&format!(
                        " if crate::__schemata::is({number}) {{ {replacement} }} "
                    ));
                    self.note(from, vec![*number]);
                }
                at + 1
            }
            Form::Arm => {
                self.written.push_str(&format!(" if {none} "));
                at + 1
            }
            Form::Guard => {
                self.written.push_str(&format!("{none} && ("));
                let next = self.stretch(place, at + 1);
                self.written.push(')');
                next
            }
        };
        self.note(start, all);
        next
    }

    fn note(&mut self, from: usize, numbers: Vec<u32>) {
        self.stretches.push(Stretch {
            file: self.file.clone(),
            from,
            to: self.written.len(),
            numbers,
        });
    }
}
