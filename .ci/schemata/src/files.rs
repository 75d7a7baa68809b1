//! Which files make up a crate, without those that only its tests have.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A source file of a crate.
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    /// Whether mutants go into it.
    pub(crate) mutated: bool,
    /// Whether it is where a crate begins.
    pub(crate) root: bool,
}

/// All files of the crate's library and of its program.
pub(crate) fn sources(folder: &Path, leave: &[String]) -> Result<Vec<SourceFile>> {
    let mut found = Vec::new();
    for root in ["src/lib.rs", "src/main.rs"] {
        let path = folder.join(root);
        if path.exists() {
            let below = folder.join("src");
            walk(&path, &below, true, leave, &mut found)?;
        }
    }
    Ok(found)
}

fn walk(
    path: &Path,
    below: &Path,
    root: bool,
    leave: &[String],
    found: &mut Vec<SourceFile>,
) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let file = syn::parse_file(&text).with_context(|| format!("parsing {}", path.display()))?;
    let left = leave.iter().any(|end| path.ends_with(end));
    found.push(SourceFile { path: path.to_path_buf(), mutated: !left, root });
    modules(&file.items, below, leave, found)
}

fn modules(
    items: &[syn::Item],
    below: &Path,
    leave: &[String],
    found: &mut Vec<SourceFile>,
) -> Result<()> {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        if is_of_tests(&module.attrs) {
            continue;
        }
        let name = module.ident.to_string();
        let inside = below.join(&name);
        if let Some((_, items)) = &module.content {
            modules(items, &inside, leave, found)?;
            continue;
        }
        let beside = below.join(format!("{name}.rs"));
        let path = if beside.exists() { beside } else { inside.join("mod.rs") };
        // What a build script makes is not there.
        if path.exists() {
            walk(&path, &inside, false, leave, found)?;
        }
    }
    Ok(())
}

/// Whether attributes say that only tests, or builds unlike the shipped one, have an item.
pub(crate) fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || path.is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| {
                    let said = list.tokens.to_string();
                    (said.contains("test") || said.contains("feature")) && !said.starts_with("not")
                })
    })
}
