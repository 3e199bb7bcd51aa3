//! The annotations of Services: one row per key is the source of the reader, the findings and the reference.
//!
//! ```
//! use ccm_kit::annotations::{Annotations, On, Spelling, Table, value};
//!
//! ccm_kit::annotation_table! {
//!     static ROWS: ();
//!     "example.com/" {
//!         TIMEOUT: i32 = value::integer, "timeout", On::All, "seconds", "`4`", "", "When silent connections are closed.";
//!     }
//! }
//! static TABLE: Table<()> =
//!     Table { spelling: Some(Spelling { prefix: "example.com/", cloud: "", names: &[] }), rows: ROWS };
//!
//! let given = [("example.com/timeout".to_owned(), "5".to_owned())].into();
//! assert_eq!(Annotations::read(&given).get(&TIMEOUT).unwrap(), Some(5));
//! let finding = TABLE.unknown("example.com/timeuot", "5", &[]).unwrap();
//! assert_eq!(finding.message, "unknown key, no effect; did you mean \"example.com/timeout\"?");
//! ```

mod spelling;
pub mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{ErrorClass, Finding, ProviderError, Severity};

pub use spelling::{Spelling, misspelt};
pub use value::{Parsed, Wrong};

/// The kinds of load balancers of a cloud that read different annotations; `()` if all read the same.
pub trait BalancerKind: Copy + PartialEq + 'static {
    /// All kinds.
    const ALL: &'static [Self];

    /// The name in messages: `classic load balancer`.
    fn as_str(self) -> &'static str;
}

impl BalancerKind for () {
    const ALL: &'static [Self] = &[()];

    fn as_str(self) -> &'static str {
        "load balancer"
    }
}

/// The kinds of load balancers that read a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On<K> {
    /// Every kind.
    All,
    /// This kind; the other kinds ignore the key.
    Only(K),
    /// This kind; the other kinds reject the key.
    Strictly(K),
}

impl<K: BalancerKind> On<K> {
    /// Whether load balancers of this kind read the key.
    pub fn reads(self, kind: K) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) | Self::Strictly(only) => only == kind,
        }
    }

    fn reference(self) -> String {
        let (only, what) = match self {
            Self::All => return if K::ALL.len() == 2 { "both" } else { "all" }.to_owned(),
            Self::Only(only) => (only, "ignored"),
            Self::Strictly(only) => (only, "refused"),
        };
        let word = |kind: &K| kind.as_str().trim_end_matches(" load balancer");
        let others: Vec<&str> = K::ALL.iter().filter(|kind| **kind != only).map(word).collect();
        format!("{}; {what} by {}", word(&only), others.join(" and "))
    }
}

/// A key, without the type of its value.
#[derive(Debug)]
pub struct Row<K> {
    /// The whole key.
    pub key: &'static str,
    /// The kinds of load balancers that read it.
    pub on: On<K>,
    /// The type of the value, in words, with its unit and bounds.
    pub value: &'static str,
    /// The behavior without the key, in Markdown; empty if there is none.
    pub default: &'static str,
    /// The time at which a change takes effect, as a sentence; empty: at the next sync.
    pub changes: &'static str,
    /// The description, in Markdown.
    pub doc: &'static str,
    /// Validates a value.
    pub check: fn(&str) -> Result<(), Wrong>,
}

impl<K> Row<K> {
    fn finding(&self, severity: Severity, value: Option<&str>, message: String) -> Finding {
        Finding { severity, key: self.key.to_owned(), value: value.map(str::to_owned), message }
    }
}

/// A key with the parser of its value.
#[derive(Debug)]
pub struct Key<T: 'static, K: 'static> {
    /// The row of the key, which is independent of the value's type.
    pub row: &'static Row<K>,
    /// Parses a value.
    pub parse: fn(&str) -> Parsed<T>,
}

/// The annotations of a Service, accessed by key.
#[derive(Debug, Clone, Copy)]
pub struct Annotations<'a>(&'a BTreeMap<String, String>);

impl<'a> Annotations<'a> {
    /// Wraps the annotations of a Service; nothing is parsed yet.
    pub fn read(annotations: &'a BTreeMap<String, String>) -> Self {
        Self(annotations)
    }

    /// The value; `None` if the key is absent, or if its value is equivalent to no annotation.
    ///
    /// # Errors
    ///
    /// The value is invalid: [`ErrorClass::Invalid`], with the key, the value and a valid example.
    pub fn get<T, K>(&self, key: &Key<T, K>) -> Result<Option<T>, ProviderError> {
        let Some(value) = self.text(key.row) else { return Ok(None) };
        match (key.parse)(value) {
            Ok(value) => Ok(value),
            Err(wrong) if wrong.severity < Severity::Error => Ok(None),
            Err(wrong) => Err(self.refuse(key.row, wrong.message)),
        }
    }

    /// The value or the default of its type.
    ///
    /// # Errors
    ///
    /// See [`Annotations::get`].
    pub fn get_or_default<T: Default, K>(&self, key: &Key<T, K>) -> Result<T, ProviderError> {
        self.get(key).map(Option::unwrap_or_default)
    }

    /// The value if it can be parsed: for findings in addition to those of [`Table::review`].
    pub fn readable<T, K>(&self, key: &Key<T, K>) -> Option<T> {
        (key.parse)(self.text(key.row)?).ok().flatten()
    }

    /// Whether the key is present, whatever its value.
    pub fn has<T, K>(&self, key: &Key<T, K>) -> bool {
        self.text(key.row).is_some()
    }

    /// The value as written.
    pub fn text<K>(&self, row: &Row<K>) -> Option<&'a str> {
        self.0.get(row.key).map(String::as_str)
    }

    /// An error about a value that its parser accepts.
    pub fn refuse<K>(&self, row: &Row<K>, problem: impl Into<String>) -> ProviderError {
        invalid(self.error(row, problem))
    }

    /// An error about a value, as a finding.
    pub fn error<K>(&self, row: &Row<K>, problem: impl Into<String>) -> Finding {
        row.finding(Severity::Error, self.text(row), problem.into())
    }

    /// A warning about a value.
    pub fn warn<K>(&self, row: &Row<K>, problem: impl Into<String>) -> Finding {
        row.finding(Severity::Warning, self.text(row), problem.into())
    }

    /// A note about a value.
    pub fn inform<K>(&self, row: &Row<K>, note: impl Into<String>) -> Finding {
        row.finding(Severity::Info, self.text(row), note.into())
    }

    /// Keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// An error that remains until the Service changes.
pub fn invalid(finding: Finding) -> ProviderError {
    let message = finding.to_string();
    ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, message)
}

/// `a classic load balancer`, `an internal load balancer`.
pub fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// All annotations of a cloud.
#[derive(Debug)]
pub struct Table<K: 'static> {
    /// The spelling of its keys; `None` if the keys have no common prefix by which to recognize them.
    pub spelling: Option<Spelling>,
    /// The rows in the order of the reference.
    pub rows: &'static [&'static Row<K>],
}

impl<K: BalancerKind> Table<K> {
    /// The invalid values, and the keys that this kind of load balancer does not read, in the order of the table.
    pub fn review(&self, annotations: Annotations<'_>, kind: K) -> Vec<Finding> {
        let of_row = |row: &&Row<K>| {
            let value = annotations.text(row)?;
            if row.on.reads(kind) {
                let wrong = (row.check)(value).err()?;
                return Some(row.finding(wrong.severity, Some(value), wrong.message));
            }
            let balancer = with_article(kind.as_str());
            Some(match row.on {
                On::Strictly(_) => annotations.error(row, format!("not possible on {balancer}; remove it")),
                _ => annotations.warn(row, format!("has no effect on {balancer}; remove it")),
            })
        };
        self.rows.iter().filter_map(of_row).collect()
    }

    /// The first key of the table that is present.
    pub fn first(&self, annotations: Annotations<'_>) -> Option<&'static Row<K>> {
        self.rows.iter().copied().find(|row| annotations.text(row).is_some())
    }

    /// The table as Markdown. The column of balancers is omitted if all are of one kind.
    pub fn reference(&self) -> String {
        let kinds = |text: &str| if K::ALL.len() > 1 { format!(" {text} |") } else { String::new() };
        let (heading, rule) = (kinds("Load balancers"), if K::ALL.len() > 1 { "---|" } else { "" });
        let mut page = format!("| Annotation |{heading} Value | Default | Effect |\n|---|{rule}---|---|---|\n");
        for row in self.rows {
            let changes = if row.changes.is_empty() { String::new() } else { format!(" {}", row.changes) };
            let default = if row.default.is_empty() { "–" } else { row.default };
            let on = kinds(&row.on.reference());
            // Writing to a `String` cannot fail.
            let _ = writeln!(page, "| `{}` |{on} {} | {default} | {}{changes} |", row.key, row.value, row.doc);
        }
        let on = kinds(&On::<K>::All.reference());
        let _ = writeln!(
            page,
            "| `{ANNOTATION_SOURCE_RANGES}` |{on} list of CIDRs | `0.0.0.0/0` | Who may connect, where \
             `spec.loadBalancerSourceRanges` is empty. |"
        );
        page
    }
}

/// Defines keys and the list of their rows. Keys with a common prefix form a block after it. Each line: name, type and
/// parser of the value; rest of the key; [`On`]; description of the value; default; when changes take effect;
/// description.
#[macro_export]
macro_rules! annotation_table {
    ($vis:vis static $rows:ident: $kind:ty;
     $($prefix:literal {
        $($name:ident: $type:ty = $parse:expr, $end:literal, $on:expr, $value:literal, $default:literal, $changes:expr,
          $doc:literal;)*
     })*) => {
        $($(
            #[doc = $doc]
            $vis static $name: $crate::annotations::Key<$type, $kind> = $crate::annotations::Key {
                row: &$crate::annotations::Row {
                    key: concat!($prefix, $end),
                    on: $on,
                    value: $value,
                    default: $default,
                    changes: $changes,
                    doc: $doc,
                    check: |text| ($parse)(text).map(drop),
                },
                parse: $parse,
            };
        )*)*

        /// All keys, in the order of the reference.
        $vis static $rows: &[&$crate::annotations::Row<$kind>] = &[$($($name.row),*),*];
    };
}
