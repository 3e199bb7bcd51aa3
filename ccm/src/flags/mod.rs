//! The table of flags, the syntax of their values, their limits, and the feature gates. Independent of the code that
//! uses them.

mod check;
pub mod gates;
pub mod table;
pub(crate) mod value;

pub use check::Check;
pub use gates::Gates;
