//! What can be changed in a file: operators, conditions, constants, bounds, statements, arms, arguments, results, and
//! one thing taken for another of its type.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::Result;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Lit, Stmt, UnOp};

use crate::files::is_of_tests;
use crate::render::{Change, Edits, Form};
use crate::swaps::{self, Names};
use crate::values;

/// Replacements longer than that are left out: each repeats its whole expression.
const LONGEST: usize = 600;

/// Everything that can be changed in the file. Much of it will not compile: who asked finds out.
pub(crate) fn edits(text: &str) -> Result<Edits> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder {
        text,
        edits: BTreeMap::new(),
        names: swaps::names(&file),
        anchor: None,
        alike: Vec::new(),
    };
    finder.visit_file(&file);
    Ok(finder.edits)
}

struct Finder<'a> {
    text: &'a str,
    edits: Edits,
    names: Names,
    /// The smallest expression around a place (a field, a variable) that is a value, and can be replaced as one.
    anchor: Option<Range<usize>>,
    /// Parameters of the functions around, by name: the others of the same type.
    alike: Vec<BTreeMap<String, Vec<String>>>,
}

impl Finder<'_> {
    fn add(&mut self, rule: &'static str, form: Form, range: Range<usize>, replacement: String) {
        if replacement.len() > LONGEST || self.text[range.clone()] == replacement {
            return;
        }
        let changes = self.edits.entry((range.start, Reverse(range.end), form)).or_default();
        if !changes.iter().any(|known| known.replacement == replacement) {
            changes.push(Change { rule, replacement });
        }
    }

    /// Replaces `part` of `whole`.
    fn replace(&mut self, rule: &'static str, whole: Range<usize>, part: Range<usize>, new: &str) {
        let text = self.text;
        let replacement =
            format!("{}{new}{}", &text[whole.start..part.start], &text[part.end..whole.end]);
        self.add(rule, Form::Expression, whole, replacement);
    }

    fn text_of(&self, part: &impl Spanned) -> &str {
        &self.text[part.span().byte_range()]
    }

    fn condition(&mut self, condition: &Expr, values: &[&str]) {
        if !has_let(condition) {
            for value in values {
                self.add(
                    "condition",
                    Form::Expression,
                    condition.span().byte_range(),
                    (*value).into(),
                );
            }
        }
    }

    /// Visits an expression that stands for a place in a larger one.
    fn place(&mut self, expression: &Expr, anchor: &Range<usize>) {
        let is_place =
            matches!(expression, Expr::Field(_) | Expr::Index(_) | Expr::Path(_) | Expr::Paren(_))
                || matches!(expression, Expr::Unary(unary) if matches!(unary.op, UnOp::Deref(_)));
        self.anchor = is_place.then(|| anchor.clone());
        self.visit_expr(expression);
        self.anchor = None;
    }

    fn binary(&mut self, range: &Range<usize>, binary: &syn::ExprBinary) {
        if has_let(&binary.left) || has_let(&binary.right) {
            return;
        }
        for new in swaps::operators(&binary.op) {
            self.replace("operator", range.clone(), binary.op.span().byte_range(), new);
        }
    }

    fn literal(&mut self, range: &Range<usize>, literal: &Lit) {
        match literal {
            Lit::Bool(value) => {
                self.add("constant", Form::Expression, range.clone(), (!value.value).to_string());
            }
            Lit::Int(value) => {
                let Ok(number) = value.base10_parse::<u64>() else { return };
                let others = match number {
                    0 => vec![1],
                    1..=64 => vec![number + 1, number - 1],
                    _ => vec![number.saturating_mul(2), number / 2],
                };
                for other in others {
                    let new = format!("{other}{}", value.suffix());
                    self.add("constant", Form::Expression, range.clone(), new);
                }
            }
            _ => {}
        }
    }

    fn bounds(&mut self, range: &Range<usize>, bounds: &syn::ExprRange) {
        if let Some(start) = &bounds.start {
            let new = format!("(({}) + 1)", self.text_of(start));
            self.replace("bound", range.clone(), start.span().byte_range(), &new);
        }
        if let Some(end) = &bounds.end {
            let sign = if matches!(bounds.limits, syn::RangeLimits::Closed(_)) { '-' } else { '+' };
            for sign in if sign == '+' { vec!['+', '-'] } else { vec!['-'] } {
                let new = format!("(({}) {sign} 1)", self.text_of(end));
                self.replace("bound", range.clone(), end.span().byte_range(), &new);
            }
        }
    }

    /// Two arguments next to each other change places.
    fn arguments<'b>(&mut self, range: &Range<usize>, arguments: impl Iterator<Item = &'b Expr>) {
        let arguments: Vec<Range<usize>> =
            arguments.map(|argument| argument.span().byte_range()).collect();
        for pair in arguments.windows(2) {
            let [one, other] = pair else { continue };
            let text = self.text;
            let replacement = [
                &text[range.start..one.start],
                &text[other.clone()],
                &text[one.end..other.start],
                &text[one.clone()],
                &text[other.end..range.end],
            ]
            .concat();
            self.add("arguments", Form::Expression, range.clone(), replacement);
        }
    }

    fn method_call(&mut self, range: &Range<usize>, call: &syn::ExprMethodCall) {
        let name = call.method.to_string();
        if let Some(other) = swaps::method(&name) {
            self.replace("method", range.clone(), call.method.span().byte_range(), other);
        }
        if swaps::NEGATED.contains(&name.as_str()) {
            let new = format!("!({})", &self.text[range.clone()]);
            self.add("method", Form::Expression, range.clone(), new);
        }
        if swaps::LEFT_OUT.contains(&name.as_str()) {
            let receiver = self.text_of(&call.receiver).to_string();
            self.add("method", Form::Expression, range.clone(), receiver);
        }
        if swaps::OF_CONDITIONS.contains(&name.as_str())
            && let Some(Expr::Closure(closure)) = call.args.first()
        {
            self.condition(&closure.body, &["true", "false"]);
        }
        self.arguments(range, call.args.iter());
    }

    fn match_arms(&mut self, arms: &[syn::Arm]) {
        for (at, arm) in arms.iter().enumerate() {
            if let Some((_, guard)) = &arm.guard {
                self.condition(guard, &["true"]);
            }
            let covered = arms[at + 1..]
                .iter()
                .any(|later| later.guard.is_none() && is_catch_all(&later.pat));
            match &arm.guard {
                Some((_, guard)) if !has_let(guard) => {
                    self.add("arm", Form::Guard, guard.span().byte_range(), "never".into());
                }
                None if covered => {
                    let end = arm.pat.span().byte_range().end;
                    self.add("arm", Form::Arm, end..end, "never".into());
                }
                _ => {}
            }
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &Block) {
        if !block.stmts.is_empty() && signature.ident != "main" {
            let start = block.brace_token.span.open().byte_range().end;
            for ending in values::endings(&signature.output) {
                self.add("result", Form::Body, start..start, ending);
            }
        }
        self.alike.push(swaps::parameters(self.text, signature));
        self.visit_block(block);
        self.alike.pop();
    }

    fn path(&mut self, anchor: &Range<usize>, path: &syn::ExprPath) {
        let range = path.span().byte_range();
        if let Some(name) = path.path.get_ident() {
            let name = name.to_string();
            let others =
                self.alike.last().and_then(|alike| alike.get(&name)).cloned().unwrap_or_default();
            for other in others {
                self.replace("name", anchor.clone(), range.clone(), &other);
            }
        } else if let Some((variant, others)) = self.names.variants_beside(&path.path) {
            for other in others {
                self.replace("variant", anchor.clone(), variant.clone(), &other);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr(&mut self, expression: &'ast Expr) {
        let range = expression.span().byte_range();
        let anchor = self.anchor.take().unwrap_or_else(|| range.clone());
        match expression {
            Expr::Binary(binary) => {
                self.binary(&range, binary);
                if is_assignment(&binary.op) {
                    self.place(&binary.left, &range);
                } else {
                    self.visit_expr(&binary.left);
                }
                self.visit_expr(&binary.right);
            }
            Expr::Unary(unary) => match unary.op {
                UnOp::Deref(_) => self.place(&unary.expr, &anchor),
                _ => {
                    let operand = self.text_of(&unary.expr).to_string();
                    self.add("operator", Form::Expression, range, operand);
                    self.visit_expr(&unary.expr);
                }
            },
            Expr::If(branch) => {
                self.condition(&branch.cond, &["true", "false"]);
                visit::visit_expr_if(self, branch);
            }
            Expr::While(repeated) => {
                self.condition(&repeated.cond, &["false"]);
                visit::visit_expr_while(self, repeated);
            }
            Expr::Match(matched) => {
                self.match_arms(&matched.arms);
                visit::visit_expr_match(self, matched);
            }
            Expr::MethodCall(call) => {
                self.method_call(&range, call);
                self.place(&call.receiver, &range);
                for argument in &call.args {
                    self.visit_expr(argument);
                }
            }
            Expr::Call(call) => {
                self.arguments(&range, call.args.iter());
                for argument in &call.args {
                    self.visit_expr(argument);
                }
            }
            Expr::Reference(reference) => self.place(&reference.expr, &range),
            Expr::Paren(paren) => self.place(&paren.expr, &anchor),
            Expr::Try(tried) => self.place(&tried.expr, &range),
            Expr::Field(field) => {
                let part = field.member.span().byte_range();
                for other in self.names.fields_beside(&field.member) {
                    self.replace("field", anchor.clone(), part.clone(), &other);
                }
                self.place(&field.base, &anchor);
            }
            Expr::Index(index) => {
                self.place(&index.expr, &anchor);
                self.visit_expr(&index.index);
            }
            Expr::Assign(assignment) => {
                self.place(&assignment.left, &range);
                self.visit_expr(&assignment.right);
            }
            Expr::Lit(literal) => self.literal(&range, &literal.lit),
            Expr::Range(bounds) => {
                self.bounds(&range, bounds);
                visit::visit_expr_range(self, bounds);
            }
            Expr::Path(path) => self.path(&anchor, path),
            Expr::Struct(made) => {
                // A field named by its variable is no expression of its own.
                for field in made.fields.iter().filter(|field| field.colon_token.is_some()) {
                    self.visit_expr(&field.expr);
                }
                if let Some(rest) = &made.rest {
                    for field in &made.fields {
                        let part = field.span().byte_range();
                        let end =
                            part.end + self.text[part.end..].find(',').map_or(0, |comma| comma + 1);
                        self.replace("left out", range.clone(), part.start..end, "");
                    }
                    self.visit_expr(rest);
                }
            }
            Expr::Repeat(repeated) => self.visit_expr(&repeated.expr),
            Expr::Macro(_) | Expr::Const(_) => {}
            other => visit::visit_expr(self, other),
        }
    }

    /// What follows `let ... else` has to leave.
    fn visit_local_init(&mut self, init: &'ast syn::LocalInit) {
        self.visit_expr(&init.expr);
        if let Some((_, Expr::Block(leaving))) =
            init.diverge.as_ref().map(|(otherwise, leaving)| (otherwise, &**leaving))
        {
            visit::visit_block(self, &leaving.block);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        for statement in &block.stmts {
            // A tail may be of type `()`: the compiler knows.
            if let Stmt::Expr(expression, _) = statement
                && !matches!(expression, Expr::Macro(_) | Expr::Path(_) | Expr::Lit(_))
            {
                self.add(
                    "statement",
                    Form::Statement,
                    statement.span().byte_range(),
                    "left out".into(),
                );
            }
        }
        visit::visit_block(self, block);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.constness.is_none() && !is_of_tests(&function.attrs) {
            self.function(&function.sig, &function.block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if function.sig.constness.is_none() && !is_of_tests(&function.attrs) {
            self.function(&function.sig, &function.block);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let is_debug = block
            .trait_
            .as_ref()
            .and_then(|(_, path, _)| path.segments.last())
            .is_some_and(|last| last.ident == "Debug");
        if !is_debug && !is_of_tests(&block.attrs) {
            visit::visit_item_impl(self, block);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_of_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_item_macro(&mut self, _: &'ast syn::ItemMacro) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
}

fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(paren) => has_let(&paren.expr),
        _ => false,
    }
}

fn is_catch_all(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Wild(_) => true,
        syn::Pat::Ident(named) => {
            named.subpat.is_none()
                && named.ident.to_string().starts_with(|c: char| c.is_lowercase())
        }
        _ => false,
    }
}

fn is_assignment(operator: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        operator,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}
