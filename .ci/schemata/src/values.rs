//! What a function may return instead of what it computes.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

/// Statements that end a function of that type at once.
pub(crate) fn endings(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec!["return;".into()],
        ReturnType::Type(_, kind) => {
            values(kind).into_iter().map(|value| format!("return {value};")).collect()
        }
    }
}

fn values(kind: &Type) -> Vec<String> {
    match kind {
        Type::Tuple(tuple) if tuple.elems.is_empty() => vec!["()".into()],
        Type::Never(_) | Type::ImplTrait(_) => vec![],
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return vec![] };
            let inner = inner(&last.arguments);
            match last.ident.to_string().as_str() {
                "bool" => vec!["true".into(), "false".into()],
                "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" => {
                    vec!["0".into(), "1".into()]
                }
                "Option" => {
                    let mut found = vec!["None".to_string()];
                    found.extend(
                        inner.iter().flat_map(values).take(2).map(|value| format!("Some({value})")),
                    );
                    found
                }
                "Result" => inner
                    .iter()
                    .take(1)
                    .flat_map(values)
                    .take(2)
                    .map(|value| format!("Ok({value})"))
                    .collect(),
                _ => vec!["Default::default()".into()],
            }
        }
        _ => vec!["Default::default()".into()],
    }
}

fn inner(arguments: &PathArguments) -> Vec<Type> {
    let PathArguments::AngleBracketed(arguments) = arguments else { return vec![] };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind.clone()),
        _ => None,
    });
    types.collect()
}
