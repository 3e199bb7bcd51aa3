//! Import cycles between the modules of one folder.
//!
//! Read from the tokens of each source file, so that paths inside macros are included. Unit tests (`#[cfg(test)]`,
//! `tests.rs`, `tests/`) are excluded. A module includes its submodules. Imports from parent modules are ignored, but
//! an import of an item that a parent re-exports counts as an import of the module that defines the item.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};

/// The path of a module below `src`; empty for the crate root.
type Module = Vec<String>;
/// The re-exports of a module from the modules in its folder: the name, and the module that defines it.
type Exports = BTreeMap<Module, BTreeMap<String, String>>;
/// The imports between modules of the same folder, with their locations.
type Edges = BTreeMap<Module, BTreeMap<Module, Vec<String>>>;

/// One line per cycle in this `src` folder.
pub(super) fn check(src: &Path) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    list(src, &mut files)?;
    let mut parsed = Vec::new();
    for file in files {
        let module = module_of(file.strip_prefix(src)?);
        parsed.push((file.display().to_string(), module, parse(&file)?));
    }
    Ok(circles(&edges(parsed)))
}

/// The imports of files: each with its name, its module and its tokens.
fn edges(files: Vec<(String, Module, TokenStream)>) -> Edges {
    let modules = files.iter().map(|(_, module, _)| module.clone()).collect();
    let (mut reexported, mut edges) = (Exports::new(), Edges::new());
    for (_, module, tokens) in &files {
        reexported.entry(module.clone()).or_default().extend(exports(tokens.clone()));
    }
    for (file, module, tokens) in files {
        Scan { file, modules: &modules, exports: &reexported, edges: &mut edges }.walk(tokens, &module);
    }
    edges
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths.into_iter().filter(|path| path.file_stem().is_some_and(|name| name != "tests")) {
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn parse(file: &Path) -> anyhow::Result<TokenStream> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    text.parse().map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
}

fn module_of(file: &Path) -> Module {
    let mut path: Module = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let nameless = match &path[..] {
        [root] => root == "lib" || root == "main",
        [.., last] => last == "mod",
        [] => false,
    };
    if nameless {
        path.pop();
    }
    path
}

/// The re-exports of a module; globs are ignored.
fn exports(tokens: TokenStream) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        if matches!(&token, TokenTree::Ident(word) if word == "use") {
            let path: Vec<TokenTree> = tokens.by_ref().take_while(|token| !is_punct(token, ';')).collect();
            let path = match &path[..] {
                [TokenTree::Ident(word), _, _, rest @ ..] if word == "self" => rest,
                path => path,
            };
            if let Some(TokenTree::Ident(module)) = path.first() {
                let mut names = Vec::new();
                idents(path.iter().skip(1).cloned().collect(), &mut names);
                exports.extend(names.into_iter().map(|name| (name.to_string(), module.to_string())));
            }
        }
    }
    exports
}

fn idents(tokens: TokenStream, names: &mut Vec<Ident>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => names.push(name),
            TokenTree::Group(group) => idents(group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

struct Scan<'a> {
    file: String,
    modules: &'a BTreeSet<Module>,
    exports: &'a Exports,
    edges: &'a mut Edges,
}

impl Scan<'_> {
    /// Reads the tokens of the module with this path.
    fn walk(&mut self, tokens: TokenStream, module: &[String]) {
        let mut rest = &tokens.into_iter().collect::<Vec<_>>()[..];
        while let [token, after @ ..] = rest {
            rest = after;
            match (token, after) {
                (hash, [TokenTree::Group(attribute), item @ ..])
                    if is_punct(hash, '#') && attribute.stream().to_string() == "cfg (test)" =>
                {
                    rest = after_item(item);
                }
                (TokenTree::Ident(word), [TokenTree::Ident(name), TokenTree::Group(body), item @ ..])
                    if word == "mod" =>
                {
                    self.walk(body.stream(), &[module, &[name.to_string()]].concat());
                    rest = item;
                }
                (TokenTree::Ident(word), _) if word == "crate" => self.import(&[], after, module),
                (TokenTree::Ident(word), _) if word == "super" => {
                    let parent = module.split_last().map_or(module, |(_, parent)| parent);
                    let (parent, path) = up(parent, after);
                    self.import(parent, path, module);
                    rest = path;
                }
                (TokenTree::Group(group), _) => self.walk(group.stream(), module),
                _ => {}
            }
        }
    }

    /// `path` follows `crate` or `super`, which mean the module `base`.
    fn import(&mut self, base: &[String], path: &[TokenTree], module: &[String]) {
        let [first, second, path @ ..] = path else { return };
        if !(is_punct(first, ':') && is_punct(second, ':')) {
            return;
        }
        match path {
            [TokenTree::Ident(name), rest @ ..] => match self.inner(base, &name.to_string()) {
                Some(inner) if !ends(rest) => self.import(&inner, rest, module),
                Some(inner) => self.edge(module, &inner, name.span()),
                None => self.edge(module, base, name.span()),
            },
            [star, ..] if is_punct(star, '*') => self.edge(module, base, star.span()),
            [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Brace => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                for item in tokens.split(|token| is_punct(token, ',')).filter(|item| !item.is_empty()) {
                    // As if the path were written in full.
                    self.import(base, &[&[first.clone(), second.clone()], item].concat(), module);
                }
            }
            _ => {}
        }
    }

    /// The module that this name in `base` means, or that defines it.
    fn inner(&self, base: &[String], name: &str) -> Option<Module> {
        let at = |name: &str| [base, &[name.to_owned()]].concat();
        let exporting = || self.exports.get(base)?.get(name).map(|module| at(module));
        [Some(at(name)), exporting()].into_iter().flatten().find(|module| self.modules.contains(module))
    }

    fn edge(&mut self, from: &[String], to: &[String], at: Span) {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let (Some(from), Some(to)) = (from.get(..=common), to.get(..=common)) else { return };
        let at = format!("{}:{}", self.file, at.start().line);
        let places = self.edges.entry(from.to_vec()).or_default().entry(to.to_vec()).or_default();
        if !places.contains(&at) {
            places.push(at);
        }
    }
}

/// Whether no `::` follows.
fn ends(rest: &[TokenTree]) -> bool {
    !matches!(rest, [first, second, ..] if is_punct(first, ':') && is_punct(second, ':'))
}

/// The position after the item that starts here.
fn after_item(tokens: &[TokenTree]) -> &[TokenTree] {
    let ends = |token: &TokenTree| {
        is_punct(token, ';') || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    let end = tokens.iter().position(ends).map_or(tokens.len(), |end| end + 1);
    tokens.get(end..).unwrap_or_default()
}

/// Resolves further `super`s.
fn up<'a>(base: &'a [String], path: &'a [TokenTree]) -> (&'a [String], &'a [TokenTree]) {
    match (base, path) {
        ([parent @ .., _], [_, _, TokenTree::Ident(word), rest @ ..]) if word == "super" => up(parent, rest),
        _ => (base, path),
    }
}

/// The shortest cycle through each module, without duplicates.
fn circles(edges: &Edges) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for module in edges.keys() {
        let Some(circle) = circle(edges, module) else { continue };
        if seen.insert(circle.iter().copied().collect::<BTreeSet<_>>()) {
            let steps = circle.iter().zip(circle.iter().cycle().skip(1));
            let lines = steps.map(|(from, to)| {
                let at = edges.get(*from).and_then(|targets| targets.get(*to)).map(|at| at.join(", "));
                format!("\n    {} imports {}: {}", from.join("::"), to.join("::"), at.unwrap_or_default())
            });
            let names: Vec<String> = circle.iter().chain([&module]).map(|module| module.join("::")).collect();
            found.push(format!("modules in a circle: {}{}", names.join(" -> "), lines.collect::<String>()));
        }
    }
    found
}

fn circle<'a>(edges: &'a Edges, start: &'a Module) -> Option<Vec<&'a Module>> {
    let mut paths = VecDeque::from([vec![start]]);
    let mut reached = BTreeSet::new();
    while let Some(path) = paths.pop_front() {
        for to in path.last().and_then(|last| edges.get(*last)).into_iter().flat_map(BTreeMap::keys) {
            if to == start {
                return Some(path);
            }
            if reached.insert(to) {
                paths.push_back([&path[..], &[to]].concat());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of a crate, as `path: text`; the root has only `pub use`.
    #[track_caller]
    fn finds(root: &str, files: &[(&str, &str)], expected: &[&str]) {
        let root = ("lib.rs", root);
        let files = files.iter().chain([&root]);
        let parsed = files.map(|(file, text)| ((*file).to_owned(), module_of(Path::new(file)), text.parse().unwrap()));
        let found = circles(&edges(parsed.collect()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_circle_is_named_with_its_lines() {
        finds(
            "",
            &[
                ("a.rs", "use crate::b::B;\n\nfn f() -> crate::b::B { B }"),
                ("b/mod.rs", "fn f() {}"),
                ("b/inner.rs", "fn f() { format!(\"{}\", super::super::c::C); }"),
                ("c.rs", "mod inner {\n use super::super::a::{self, A};\n }"),
            ],
            &[
                "modules in a circle: a -> b -> c -> a\n    a imports b: a.rs:1, a.rs:3\n    b imports c: b/inner.rs:1\n    \
               c imports a: c.rs:2",
            ],
        );
    }

    #[test]
    fn a_name_that_the_root_reexports_is_an_import_of_its_module() {
        finds(
            "mod a; mod b; pub use a::{A, inner::Deep}; pub use b::B;",
            &[("a.rs", "use crate::{B, a::x};"), ("b.rs", "impl B { fn f(self) -> crate::Deep {} }")],
            &["modules in a circle: a -> b -> a\n    a imports b: a.rs:1\n    b imports a: b.rs:1"],
        );
    }

    #[test]
    fn an_import_of_everything_is_one() {
        finds(
            "",
            &[("a.rs", "use crate::b::*;"), ("b.rs", "use super::{a::{*}, c}; use super::*;"), ("c.rs", "")],
            &["modules in a circle: a -> b -> a\n    a imports b: a.rs:1\n    b imports a: b.rs:1"],
        );
    }

    #[test]
    fn two_circles_of_one_module_are_two() {
        let files = [("a.rs", "use crate::{b, c};"), ("b.rs", "use crate::a;"), ("c.rs", "use crate::a;")];
        let two = |name: &str| {
            format!(
                "modules in a circle: a -> {name} -> a\n    a imports {name}: a.rs:1\n    {name} imports a: {name}.rs:1"
            )
        };
        let other = "modules in a circle: c -> a -> c\n    c imports a: c.rs:1\n    a imports c: a.rs:1";
        finds("", &files, &[&two("b"), other]);
    }

    #[test]
    fn modules_of_one_folder_are_compared_at_every_depth() {
        finds(
            "",
            &[
                ("a/mod.rs", "pub use self::role::Role; use decide::x;"),
                ("a/decide.rs", "use super::role::Role;"),
                ("a/role.rs", "use super::{NAME, decide::{self, x}};"),
                ("a/hosts.rs", "use super::Role; use crate::b;"),
                ("b/mod.rs", ""),
                ("b/deep.rs", "use super::B; use crate::a::decide;"),
            ],
            &[
                "modules in a circle: a -> b -> a\n    a imports b: a/hosts.rs:1\n    b imports a: b/deep.rs:1",
                "modules in a circle: a::decide -> a::role -> a::decide\n    a::decide imports a::role: a/decide.rs:1\n    \
               a::role imports a::decide: a/role.rs:1",
            ],
        );
    }

    #[test]
    fn tests_comments_and_paths_inside_of_a_module_are_no_imports() {
        finds(
            "",
            &[
                ("a.rs", "use crate::b;\n#[cfg(test)] use crate::z::{Z}; use crate::c;"),
                (
                    "b/mod.rs",
                    "//! [crate::a]\n#[cfg(test)]\nmod tests { use crate::a; }\npub(crate) struct B(&'static str);\n\
                     const TEXT: &str = \"crate::a\";",
                ),
                ("b/a.rs", "use super::B; use std::a;"),
                ("b/deep/a.rs", "use super::super::a;"),
                ("c.rs", "#[cfg(test)]\n#[path = \"x\"]\nmod tests;\n#[cfg(test)] fn f() -> u8 { crate::a::f() }"),
            ],
            &[],
        );
    }
}
