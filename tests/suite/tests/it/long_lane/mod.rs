//! What takes minutes.

mod chaos;
