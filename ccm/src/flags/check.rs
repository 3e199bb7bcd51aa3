//! Values within their limits; errors are collected.

use std::net::IpAddr;
use std::time::Duration;

use ccm_provider::flag::FlagValues;

use super::Gates;

/// All flags and their errors.
#[derive(Debug)]
pub struct Check<'a> {
    /// All flags.
    pub values: &'a FlagValues,
    /// The feature gates.
    pub gates: Gates,
    /// The errors, for the user.
    pub errors: Vec<String>,
    /// Classes of Services that a separate enabled controller handles, each with the name of that controller.
    pub(crate) classes: Vec<(&'static str, &'static str)>,
}

impl Check<'_> {
    /// Adds an error.
    pub fn error(&mut self, text: impl Into<String>) {
        self.errors.push(text.into());
    }

    /// A number of workers; `None` if the flag is not given.
    pub fn at_least_one(&mut self, name: &str) -> Option<usize> {
        let number = self.values.int(name)?;
        let number = usize::try_from(number).ok().filter(|number| *number > 0);
        if number.is_none() {
            self.error(format!("{name} must be a positive number"));
        }
        number
    }

    /// A number of workers; 0 means not given.
    pub fn workers_or_none(&mut self, name: &str) -> Option<usize> {
        let Ok(number) = usize::try_from(self.values.int(name).unwrap_or_default()) else {
            self.error(format!("{name} cannot be a negative number"));
            return None;
        };
        Some(number).filter(|number| *number > 0)
    }

    pub fn not_negative(&mut self, name: &str) -> usize {
        let number = self.values.int(name).unwrap_or_default();
        usize::try_from(number).unwrap_or_else(|_| {
            self.error(format!("--{name} {number} cannot be negative"));
            0
        })
    }

    /// A nonzero duration.
    pub fn period(&mut self, name: &str) -> Duration {
        let duration = self.values.duration(name);
        if duration.is_zero() {
            self.error(format!("--{name} must be greater than 0"));
        }
        duration
    }

    /// An address, already validated by the parser.
    pub fn address(&self, name: &str) -> IpAddr {
        self.values.text(name).parse().unwrap_or(IpAddr::from([0, 0, 0, 0]))
    }

    pub fn port(&mut self, name: &str, text: impl Fn(i64) -> String) -> u16 {
        let port = self.values.int(name).unwrap_or_default();
        u16::try_from(port).unwrap_or_else(|_| {
            self.error(format!("--{name} {port} must be {}", text(port)));
            0
        })
    }
}
