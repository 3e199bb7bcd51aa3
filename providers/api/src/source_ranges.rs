//! source_ranges
