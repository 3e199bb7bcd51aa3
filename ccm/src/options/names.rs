//! Lists of enabled names, such as `--controllers=*,-route`.

use ccm_kit::document::nearest;

#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) name: &'a str,
    pub(super) aliases: &'a [&'a str],
    /// Whether `*` includes it.
    pub(super) by_default: bool,
}

/// The known names that a list enables, in their order: aliases are equivalent to the name, the first entry for a name
/// applies, and without `*` only listed names are enabled. Unknown names are added to `errors`; `what` is their plural.
pub(super) fn switched_on(known: &[Name<'_>], list: &[String], what: &str, errors: &mut Vec<String>) -> Vec<bool> {
    let canonical = |word: &str| known.iter().find(|known| known.name == word || known.aliases.contains(&word));
    let mut decided: Vec<(&str, bool)> = Vec::new();
    let mut all = false;
    for entry in list {
        if entry == "*" {
            all = true;
            continue;
        }
        let (word, on) = entry.strip_prefix('-').map_or((entry.as_str(), true), |word| (word, false));
        match canonical(word) {
            Some(found) => decided.push((found.name, on)),
            None => {
                let hint = hint(word, known).unwrap_or_default();
                errors.push(format!("{word:?} is not in the list of known {what}{hint}"));
            }
        }
    }
    let first = |name: &str| decided.iter().find(|(decided, _)| *decided == name).map(|(_, on)| *on);
    known.iter().map(|known| first(known.name).unwrap_or(all && known.by_default)).collect()
}

/// The name that may be meant. Those of the controllers of nodes begin with `cloud-`, which is easily forgotten.
fn hint(word: &str, known: &[Name<'_>]) -> Option<String> {
    fn plain(name: &str) -> &str {
        name.strip_prefix("cloud-").unwrap_or(name)
    }
    let names: Vec<&str> = known.iter().flat_map(|known| [&[known.name][..], known.aliases].concat()).collect();
    let meant = nearest(plain(word), &names.iter().map(|name| plain(name)).collect::<Vec<_>>())?;
    let meant = names.iter().find(|name| plain(name) == meant)?;
    Some(format!("; did you mean {meant:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Name<'_>; 3] = [
        Name { name: "node-controller", aliases: &["node"], by_default: true },
        Name { name: "route-controller", aliases: &["route", "routes"], by_default: true },
        Name { name: "ipam", aliases: &[], by_default: false },
    ];

    fn on(list: &str) -> Result<Vec<&'static str>, Vec<String>> {
        let mut errors = Vec::new();
        let list: Vec<String> = list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let on = switched_on(&KNOWN, &list, "things", &mut errors);
        let names = KNOWN.iter().zip(on).filter(|(_, on)| *on).map(|(known, _)| known.name).collect();
        if errors.is_empty() { Ok(names) } else { Err(errors) }
    }

    #[test]
    fn the_first_entry_for_a_name_wins_and_without_a_star_only_named_ones_are_on() {
        let rows: [(&str, &[&str]); 9] = [
            ("*", &["node-controller", "route-controller"]),
            ("*,ipam", &["node-controller", "route-controller", "ipam"]),
            ("*,-route,route", &["node-controller"]),
            ("*,route,-route-controller", &["node-controller", "route-controller"]),
            ("-routes,*", &["node-controller"]),
            ("node", &["node-controller"]),
            ("ipam,-node", &["ipam"]),
            ("-node", &[]),
            ("", &[]),
        ];
        for (list, expected) in rows {
            assert_eq!(on(list), Ok(expected.to_vec()), "{list}");
        }
    }

    #[test]
    fn every_word_that_names_nothing_is_reported_as_it_was_given() {
        let unknown = |(word, hint)| format!("{word:?} is not in the list of known things{hint}");
        let meant = "; did you mean \"node\"?";
        let words = [("foo", ""), ("nodes", meant), ("*", ""), ("-node", meant)];
        assert_eq!(on("*,-foo,nodes,-*,--node"), Err(words.map(unknown).into()));
    }
}
