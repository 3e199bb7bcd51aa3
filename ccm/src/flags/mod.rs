//! The table of flags, the form of their values, their limits, and the feature gates. Nothing here knows who reads them.

mod check;
pub mod gates;
pub mod table;
pub(crate) mod value;

pub use check::Check;
pub use gates::Gates;
