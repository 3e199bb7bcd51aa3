//! Detects misspelled annotation keys.

use std::collections::BTreeSet;

use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{Finding, Severity};

use super::Table;
use crate::document::nearest;

/// The prefix of a cloud's keys, and its common misspellings.
#[derive(Debug, Clone, Copy)]
pub struct Spelling {
    /// The prefix of the keys, including the domain. A key with this prefix that is in no table is unknown.
    pub prefix: &'static str,
    /// The cloud's name in keys: the first word after the domain. Not used if the prefix is only a domain.
    pub cloud: &'static str,
    /// Words that users write between the cloud's name and the rest of a key, in lower case and without hyphens.
    pub names: &'static [&'static str],
}

impl Spelling {
    fn domain(&self) -> &'static str {
        self.prefix.split('/').next().unwrap_or_default()
    }

    /// The prefix without the domain and without separators between words.
    fn squeezed(&self) -> String {
        plain(self.prefix.split_once('/').map_or("", |(_, name)| name))
    }

    /// Whether a key with another prefix resembles one of the cloud; `is_known`: its name is nearly that of a key.
    fn fits(&self, domain: &str, name: &str, is_known: bool) -> bool {
        let is_near = nearest(domain, &[self.domain()]).is_some();
        if self.prefix.ends_with('/') {
            return is_near && is_known;
        }
        let familiar = domain.is_empty() || domain.contains("kubernetes") || domain.contains("k8s");
        let rest = plain(name).strip_prefix(self.cloud).map(str::to_owned);
        let of_balancers = rest.is_some_and(|rest| self.names.iter().any(|word| rest.starts_with(word)));
        self.is_nearly_cloud(name) && (familiar || is_near) && (of_balancers || is_known || domain == self.domain())
    }

    /// Whether the first word of a name is the cloud's, or one typing error away from it. Other clouds have keys of the
    /// same form.
    fn is_nearly_cloud(&self, name: &str) -> bool {
        let sorted = |word: &str| {
            let mut letters: Vec<char> = word.to_lowercase().chars().collect();
            letters.sort_unstable();
            letters
        };
        let first = name.split(['-', '_', '.']).next().unwrap_or_default();
        let squeezed = self.squeezed();
        // Written as one word: the beginning of the next word is enough.
        let joined = squeezed.get(..=self.cloud.len()).unwrap_or(&squeezed);
        nearest(first, &[self.cloud]).is_some()
            || sorted(first) == sorted(self.cloud)
            || plain(first).starts_with(joined)
    }
}

impl<K> Table<K> {
    /// An unknown key that resembles one of the table, or has the same prefix.
    ///
    /// `others`: the parts after the prefix of the keys that another program reads. It may read further keys: if
    /// `others` is not empty, a key that resembles none is not a finding.
    pub fn unknown(&self, key: &str, value: &str, others: &[&str]) -> Option<Finding> {
        if key == ANNOTATION_SOURCE_RANGES || self.rows.iter().any(|row| row.key == key) {
            return None;
        }
        let under = self.spelling.and_then(|spelling| Some((spelling, key.strip_prefix(spelling.prefix)?)));
        let Some((spelling, end)) = under else { return self.alike(key, value) };
        let known: Vec<&str> = self.ends().map(|(end, _)| end).chain(others.iter().copied()).collect();
        // Compares the part after the prefix only: whole keys would all be similar.
        let meant = nearest(end, &known).or_else(|| shortened(end, &known));
        let meant = meant.map(|end| format!("{}{end}", spelling.prefix));
        (meant.is_some() || others.is_empty()).then(|| misspelt(key, value, meant.as_deref()))
    }

    /// Checks a key with another prefix.
    fn alike(&self, key: &str, value: &str) -> Option<Finding> {
        let is_elsewhere = |key: &&str| self.spelling.is_none_or(|spelling| !key.starts_with(spelling.prefix));
        let whole = self.rows.iter().map(|row| row.key).filter(is_elsewhere).chain([ANNOTATION_SOURCE_RANGES]);
        if let Some(meant) = nearest(key, &whole.collect::<Vec<_>>()) {
            return Some(misspelt(key, value, Some(meant)));
        }
        let (domain, name) = key.split_once('/').unwrap_or(("", key));
        let Some(spelling) = self.spelling else {
            return self.of_domains(domain, name).map(|meant| misspelt(key, value, Some(meant)));
        };
        let meant = self.meant(name);
        spelling.fits(domain, name, meant.is_some()).then(|| {
            let mut finding = misspelt(key, value, meant);
            if meant.is_none() {
                finding.message += &format!("; keys for load balancers begin with {:?}", spelling.prefix);
            }
            finding
        })
    }

    /// The key that has this name under another domain of the table, or all of its words.
    fn of_domains(&self, domain: &str, name: &str) -> Option<&'static str> {
        let keys: Vec<(&str, &str)> = self.rows.iter().filter_map(|row| row.key.split_once('/')).collect();
        if !keys.iter().any(|(known, _)| *known == domain) {
            return None;
        }
        let names: BTreeSet<&str> = keys.iter().map(|(_, name)| *name).collect();
        let meant = names.get(name).copied().or_else(|| shortened(name, &Vec::from_iter(names)))?;
        self.rows.iter().map(|row| row.key).find(|key| key.ends_with(&format!("/{meant}")))
    }

    /// The key that a name may mean, whatever separates its words.
    pub fn meant(&self, name: &str) -> Option<&'static str> {
        let spelling = self.spelling?;
        let (name, squeezed) = (plain(name), spelling.squeezed());
        let ends: Vec<(String, &'static str)> = self.ends().map(|(end, key)| (plain(end), key)).collect();
        let of_end = |end: &str| ends.iter().find(|(known, _)| known == end).map(|(_, key)| *key);
        let rest = name.strip_prefix(spelling.cloud);
        if let Some(rest) = rest.and_then(|rest| spelling.names.iter().find_map(|word| rest.strip_prefix(word))) {
            let known: Vec<&str> = ends.iter().map(|(end, _)| end.as_str()).collect();
            return of_end(nearest(rest, &known)?);
        }
        let full: Vec<String> = ends.iter().map(|(end, _)| format!("{squeezed}{end}")).collect();
        let full: Vec<&str> = full.iter().map(String::as_str).collect();
        rest.and_then(of_end).or_else(|| of_end(nearest(&name, &full)?.strip_prefix(&*squeezed)?))
    }

    /// The part after the prefix of each key that has the prefix, and the whole key.
    fn ends(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let prefix = self.spelling.map_or("", |spelling| spelling.prefix);
        self.rows.iter().filter_map(move |row| Some((row.key.strip_prefix(prefix)?, row.key)))
    }
}

/// The only key that contains all words of `end`, if `end` has several: `cross-zone`, `additional-tags`.
fn shortened<'a>(end: &str, known: &[&'a str]) -> Option<&'a str> {
    let words: Vec<&str> = end.split(['-', '_', '.']).collect();
    let mut having = known.iter().filter(|end| words.iter().all(|word| end.split('-').any(|of_it| of_it == *word)));
    let only = having.next().filter(|_| having.next().is_none() && words.len() > 1)?;
    Some(only)
}

/// A finding about a key that is not in the table, with the key that may be meant.
pub fn misspelt(key: &str, value: &str, meant: Option<&str>) -> Finding {
    let hint = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
    Finding {
        severity: Severity::Warning,
        key: key.to_owned(),
        value: Some(value.to_owned()),
        message: format!("unknown key, no effect{hint}"),
    }
}

/// The letters and digits of a text, in lower case.
fn plain(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}
