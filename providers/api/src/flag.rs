//! Command line flags as data: one [`Flag`] each, wherever it is defined.
//!
//! The program's own flags, those of a provider ([`ProviderFactory::flags`](crate::ProviderFactory::flags)) and those
//! of an added controller are entries of the same kind. They are the source of the parser, `--help`, the `FLAG:` log
//! lines, the reference page and shell completions.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::duration;

/// The kind of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `--x`, `--x=true`, `--x=false`
    Bool,
    /// A 64-bit integer.
    Int,
    /// A 32-bit integer.
    Int32,
    /// A number.
    Float,
    /// A duration in Go's syntax.
    Duration,
    /// Any text.
    Text,
    /// An IP address.
    Ip,
    /// Comma-separated texts; a repeated flag appends, an empty value clears.
    List,
    /// Comma-separated integers; a repeated flag appends.
    Ints,
    /// `key=value,…`; the value of a single pair may contain commas. A repeated flag adds.
    Pairs,
    /// Texts that may contain commas, one per occurrence of the flag.
    Repeated,
    /// `certificate,key` or `certificate,key:name,…`, one per occurrence of the flag.
    CertKey,
    /// `A=true,B=false`; a repeated flag adds.
    Switches,
    /// A Kubernetes quantity of bytes, such as `64Ki`.
    Quantity,
    /// A log verbosity.
    Level,
    /// Log verbosities of single files, `pattern=N,…`.
    Vmodule,
    /// Empty, `true`, `false`, `raw` or `vX.Y.Z…`.
    Version,
}

impl Kind {
    /// The placeholder for the value in `--help`, as in pflag; empty for none.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "",
            Self::Int => "int",
            Self::Int32 => "int32",
            Self::Float => "float32",
            Self::Duration => "duration",
            Self::Text => "string",
            Self::Ip => "ip",
            Self::List => "strings",
            Self::Ints => "int32Slice",
            Self::Pairs => "stringToString",
            Self::Repeated => "stringArray",
            Self::CertKey => "namedCertKey",
            Self::Switches => "mapStringBool",
            Self::Quantity => "quantity",
            Self::Level => "Level",
            Self::Vmodule => "pattern=N,...",
            Self::Version => "version[=true]",
        }
    }
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Name without dashes.
    pub name: &'static str,
    /// The one-letter form, if it has one.
    pub short: Option<char>,
    /// Heading in `--help`.
    pub section: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Default value; empty for "not set".
    pub default: &'static str,
    /// Help text.
    pub help: &'static str,
    /// The replacement; printed as a warning when the flag is given.
    pub deprecated: Option<&'static str>,
    /// Whether `--help` omits it.
    pub hidden: bool,
}

impl Flag {
    /// A flag in this section.
    pub const fn new(
        section: &'static str,
        name: &'static str,
        kind: Kind,
        default: &'static str,
        help: &'static str,
    ) -> Self {
        Self { name, short: None, section, kind, default, help, deprecated: None, hidden: false }
    }

    /// The flag with a one-letter form.
    #[must_use]
    pub const fn short(self, letter: char) -> Self {
        Self { short: Some(letter), ..self }
    }

    /// The flag, deprecated: it still works, with a warning. `--help` omits it, as upstream does.
    #[must_use]
    pub const fn deprecated(self, instead: &'static str) -> Self {
        Self { deprecated: Some(instead), hidden: true, ..self }
    }
}

/// The value of every flag, as text that the parser has validated for the flag's [`Kind`].
#[derive(Debug, Clone, Default)]
pub struct FlagValues {
    values: BTreeMap<&'static str, Vec<String>>,
    given: Vec<&'static str>,
}

impl FlagValues {
    /// Sets a flag; `given` if it was on the command line. The last value of a single-valued flag applies.
    pub fn insert(&mut self, name: &'static str, values: Vec<String>, given: bool) {
        if given {
            self.given.push(name);
        }
        self.values.insert(name, values);
    }

    fn last(&self, name: &str) -> &str {
        self.values.get(name).and_then(|values| values.last()).map(String::as_str).unwrap_or_default()
    }

    /// A text; empty when not set.
    pub fn text(&self, name: &str) -> String {
        self.last(name).to_owned()
    }

    /// A list.
    pub fn list(&self, name: &str) -> Vec<String> {
        self.values.get(name).cloned().unwrap_or_default()
    }

    /// A boolean, already validated by the parser.
    pub fn bool(&self, name: &str) -> bool {
        go_bool(self.last(name)).unwrap_or_default()
    }

    /// A whole number; `None` when not set.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.last(name).parse().ok()
    }

    /// A number; `None` when not set.
    pub fn float(&self, name: &str) -> Option<f64> {
        self.last(name).parse().ok()
    }

    /// A duration, already validated by the parser.
    pub fn duration(&self, name: &str) -> Duration {
        duration::parse(self.last(name)).unwrap_or_default()
    }

    /// Whether the flag was on the command line.
    pub fn given(&self, name: &str) -> bool {
        self.given.contains(&name)
    }

    /// Name and value of every flag, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        self.values.iter().map(|(name, values)| (*name, values.as_slice()))
    }
}

/// Parses like Go's `strconv.ParseBool`.
pub fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}
