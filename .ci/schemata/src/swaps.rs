//! What can be taken for what: operators, methods, and names of the same type.

use std::collections::BTreeMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, FnArg, Member, Pat, Signature};

/// Methods whose result can be denied.
pub(crate) const NEGATED: [&str; 6] =
    ["is_empty", "contains", "contains_key", "is_subset", "is_superset", "is_disjoint"];
/// Methods without which an expression may have the same type.
pub(crate) const LEFT_OUT: [&str; 8] =
    ["or", "or_else", "and", "clamp", "trim", "saturating_sub", "max", "min"];
/// Methods whose argument decides by a bool.
pub(crate) const OF_CONDITIONS: [&str; 12] = [
    "filter",
    "any",
    "all",
    "find",
    "position",
    "retain",
    "take_while",
    "skip_while",
    "is_some_and",
    "is_none_or",
    "partition",
    "partition_point",
];
const PAIRS: [(&str, &str); 22] = [
    ("min", "max"),
    ("min_by_key", "max_by_key"),
    ("any", "all"),
    ("first", "last"),
    ("first_key_value", "last_key_value"),
    ("pop_first", "pop_last"),
    ("pop_front", "pop_back"),
    ("push_front", "push_back"),
    ("front", "back"),
    ("next", "last"),
    ("is_some", "is_none"),
    ("is_ok", "is_err"),
    ("is_some_and", "is_none_or"),
    ("position", "rposition"),
    ("find", "rfind"),
    ("checked_add", "checked_sub"),
    ("saturating_add", "saturating_sub"),
    ("wrapping_add", "wrapping_sub"),
    ("union", "intersection"),
    ("starts_with", "ends_with"),
    ("extend", "clone_from"),
    ("keys", "values"),
];

/// What a method can be taken for.
pub(crate) fn method(name: &str) -> Option<&'static str> {
    let direct = PAIRS.iter().find(|(one, _)| *one == name).map(|(_, other)| *other);
    direct.or_else(|| PAIRS.iter().find(|(_, other)| *other == name).map(|(one, _)| *one))
}

/// What an operator can be taken for.
pub(crate) fn operators(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">=", "=="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<=", "=="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::BitXor(_) => &["|"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::MulAssign(_) => &["+="],
        BinOp::DivAssign(_) => &["*="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitXorAssign(_) => &["|="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    }
}

/// Fields of the file's structs and variants of its enums, each with the others of the same type.
#[derive(Default)]
pub(crate) struct Names {
    fields: BTreeMap<String, Vec<String>>,
    variants: BTreeMap<(String, String), Vec<String>>,
}

/// What the file names.
pub(crate) fn names(file: &syn::File) -> Names {
    let mut names = Names::default();
    names.visit_file(file);
    names
}

impl Names {
    pub(crate) fn fields_beside(&self, member: &Member) -> Vec<String> {
        match member {
            Member::Named(name) if name == "start" => vec!["end".into()],
            Member::Named(name) if name == "end" => vec!["start".into()],
            Member::Named(name) => self.fields.get(&name.to_string()).cloned().unwrap_or_default(),
            Member::Unnamed(index) if index.index == 0 => vec!["1".into()],
            Member::Unnamed(index) if index.index == 1 => vec!["0".into()],
            Member::Unnamed(_) => vec![],
        }
    }

    /// Of a path to a variant: where its last name is, and what else could stand there.
    pub(crate) fn variants_beside(&self, path: &syn::Path) -> Option<(Range<usize>, Vec<String>)> {
        let mut names = path.segments.iter().rev();
        let (last, of) = (names.next()?, names.next()?);
        let others = self.variants.get(&(of.ident.to_string(), last.ident.to_string()))?;
        Some((last.span().byte_range(), others.clone()))
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let fields: Vec<_> = item.fields.iter().collect();
        for (at, field) in fields.iter().enumerate() {
            let Some(name) = &field.ident else { continue };
            // The next of the same type, round about: one other for each.
            let other = (1..fields.len())
                .map(|step| fields[(at + step) % fields.len()])
                .find(|other| other.ty == field.ty);
            if let Some(other) = other.and_then(|other| other.ident.as_ref()) {
                let others = self.fields.entry(name.to_string()).or_default();
                if !others.contains(&other.to_string()) {
                    others.push(other.to_string());
                }
            }
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let plain: Vec<String> = item
            .variants
            .iter()
            .filter(|variant| variant.fields.is_empty())
            .map(|variant| variant.ident.to_string())
            .collect();
        for (at, name) in plain.iter().enumerate() {
            let other = plain[(at + 1) % plain.len()].clone();
            if other != *name {
                for of in [item.ident.to_string(), "Self".into()] {
                    self.variants.entry((of, name.clone())).or_default().push(other.clone());
                }
            }
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !crate::files::is_of_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }
}

/// Parameters by name, each with the next one of the same type.
pub(crate) fn parameters(text: &str, signature: &Signature) -> BTreeMap<String, Vec<String>> {
    let named: Vec<(String, &str)> = signature
        .inputs
        .iter()
        .filter_map(|input| match input {
            FnArg::Typed(typed) => match &*typed.pat {
                Pat::Ident(name) => {
                    Some((name.ident.to_string(), &text[typed.ty.span().byte_range()]))
                }
                _ => None,
            },
            FnArg::Receiver(_) => None,
        })
        .collect();
    let mut found = BTreeMap::new();
    for (at, (name, kind)) in named.iter().enumerate() {
        let other = (1..named.len())
            .map(|step| &named[(at + step) % named.len()])
            .find(|(_, other)| other == kind);
        if let Some((other, _)) = other {
            found.insert(name.clone(), vec![other.clone()]);
        }
    }
    found
}
