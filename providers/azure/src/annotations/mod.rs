//! The table of annotations.
