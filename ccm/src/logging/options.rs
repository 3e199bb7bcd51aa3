//! The logging flags and their validation.
//!
//! Names, rules and texts of `k8s.io/component-base/logs/api/v1` (`types.go`, `options.go`, `pflags.go`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ccm_kit::document::did_you_mean;
use ccm_provider::duration;

/// The largest verbosity, as in klog.
const HIGHEST: u64 = i32::MAX as u64;

/// The logging settings. `Default` applies without flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggingOptions {
    /// `--logging-format`: `text` or `json`; kept as given, [`LoggingOptions::validate`] rejects other values.
    pub format: String,
    /// `--log-flush-frequency`: the maximum delay of buffered entries. Used only with [`Routing::info_buffer_size`].
    pub flush_frequency: Duration,
    /// `-v`: see [`super::set_verbosity`] for its effect.
    pub verbosity: u32,
    /// Shows nothing without `-v1`: for commands, which print their findings themselves.
    pub quiet: bool,
    /// `--vmodule`: verbosity of single source files; the first matching pattern applies.
    pub vmodule: Vec<VmoduleItem>,
    /// `--log-text-split-stream`, `--log-text-info-buffer-size`: used with format `text`.
    pub text: Routing,
    /// `--log-json-split-stream`, `--log-json-info-buffer-size`: used with format `json`.
    pub json: Routing,
}

/// The streams of entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Routing {
    /// Information to stdout and the rest to stderr; otherwise all to stderr. With `json`, warnings count as
    /// information, as in Go.
    pub split_stream: bool,
    /// Bytes of information that may be buffered; only with `split_stream`; none if 0 or less.
    pub info_buffer_size: i64,
}

/// One `pattern=N` of `--vmodule`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmoduleItem {
    /// The name of a source file without folder and `.rs`, or a pattern (`*`, `?`) for such names. A `mod.rs` can also
    /// be given by the name of its folder.
    pub pattern: String,
    /// The verbosity of these files.
    pub verbosity: u32,
}

/// The feature gates for logging flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggingGates {
    /// `LoggingAlphaOptions`, off by default.
    pub alpha: bool,
    /// `LoggingBetaOptions`, on by default.
    pub beta: bool,
}

impl Default for LoggingGates {
    fn default() -> Self {
        Self { alpha: false, beta: true }
    }
}

/// A format of log entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines of klog.
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for Format {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}

impl Default for LoggingOptions {
    fn default() -> Self {
        Self {
            format: "text".into(),
            flush_frequency: Duration::from_secs(5),
            verbosity: 0,
            quiet: false,
            vmodule: Vec::new(),
            text: Routing::default(),
            json: Routing::default(),
        }
    }
}

impl LoggingOptions {
    /// All errors, with upstream's order and text; empty if the options are valid. The Go program joins several to
    /// `[a, b]` and exits with code 1.
    pub fn validate(&self, gates: LoggingGates) -> Vec<String> {
        let mut errors = Vec::new();
        if self.flush_frequency.is_zero() {
            let value = duration::format(self.flush_frequency);
            errors.push(format!("flushFrequency: Invalid value: {value:?}: Must be greater than zero"));
        }
        match self.format.parse() {
            Err(()) => {
                let hint = did_you_mean(&self.format, &["json", "text"]).unwrap_or_default();
                errors.push(format!("format: Invalid value: {:?}: Unsupported log format{hint}", self.format));
            }
            Ok(Format::Json) if !gates.beta => {
                errors.push("format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature".into());
            }
            Ok(_) => {}
        }
        if !self.vmodule.is_empty() && !["", "text"].contains(&self.format.as_str()) {
            errors.push("vmodule: Forbidden: Only supported for text log format".into());
        }
        for (name, routing) in [("text", self.text), ("json", self.json)] {
            let asked = [("splitStream", routing.split_stream), ("infoBufferSize", routing.info_buffer_size != 0)];
            for (field, _) in asked.into_iter().filter(|(_, asked)| *asked && !gates.alpha) {
                errors.push(format!("options.{name}.{field}: Forbidden: Feature LoggingAlphaOptions is disabled"));
            }
        }
        errors
    }

    /// The format; `text` if it is invalid.
    pub(super) fn format(&self) -> Format {
        self.format.parse().unwrap_or(Format::Text)
    }

    pub(super) fn routing(&self) -> Routing {
        match self.format() {
            Format::Text => self.text,
            Format::Json => self.json,
        }
    }
}

impl fmt::Display for VmoduleItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.verbosity)
    }
}

/// Parses the value of `-v`.
///
/// # Errors
///
/// Go's text after `invalid argument "x" for "-v, --v" flag: `.
pub fn parse_verbosity(text: &str) -> Result<u32, String> {
    let fail = |why: &str| format!("strconv.ParseUint: parsing {text:?}: {why}");
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(fail("invalid syntax"));
    }
    let value = text.parse::<u64>().ok().filter(|value| *value <= HIGHEST);
    value.and_then(|value| u32::try_from(value).ok()).ok_or_else(|| fail("value out of range"))
}

/// Parses the value of `--vmodule`, `pattern=N,…`; empty parts are ignored.
///
/// # Errors
///
/// Go's text after `invalid argument "x" for "--vmodule" flag: `.
pub fn parse_vmodule(text: &str) -> Result<Vec<VmoduleItem>, String> {
    let item = |part: &str| match part.split('=').collect::<Vec<_>>()[..] {
        [pattern, number] if !pattern.is_empty() && !number.is_empty() => {
            let verbosity =
                parse_verbosity(number).map_err(|error| format!("parsing verbosity in {part:?}: {error}"))?;
            Ok(VmoduleItem { pattern: pattern.to_owned(), verbosity })
        }
        _ => Err(format!("{part:?} does not have the pattern=N format")),
    };
    text.split(',').filter(|part| !part.is_empty()).map(item).collect()
}

/// Parses the value of `--log-text-info-buffer-size` and `--log-json-info-buffer-size`, a Kubernetes quantity, into
/// bytes.
///
/// # Errors
///
/// Go's text after `invalid argument "x" for "--log-…" flag: `.
pub fn parse_buffer_size(text: &str) -> Result<i64, String> {
    bytes(text).ok_or_else(|| {
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into()
    })
}

/// Rounded up, saturating at `i64::MAX`.
fn bytes(text: &str) -> Option<i64> {
    let ends = |c: char| !c.is_ascii_digit() && !['+', '-', '.'].contains(&c);
    let (number, suffix) = text.split_at_checked(text.find(ends).unwrap_or(text.len()))?;
    let (base, power): (f64, i32) = match suffix {
        "Ki" => (1024.0, 1),
        "Mi" => (1024.0, 2),
        "Gi" => (1024.0, 3),
        "Ti" => (1024.0, 4),
        "Pi" => (1024.0, 5),
        "Ei" => (1024.0, 6),
        "n" => (10.0, -9),
        "u" => (10.0, -6),
        "m" => (10.0, -3),
        "" => (10.0, 0),
        "k" => (10.0, 3),
        "M" => (10.0, 6),
        "G" => (10.0, 9),
        "T" => (10.0, 12),
        "P" => (10.0, 15),
        "E" => (10.0, 18),
        exponent => (10.0, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let bytes = number.parse::<f64>().ok()? * base.powi(power);
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    Some(bytes.ceil() as i64)
}
