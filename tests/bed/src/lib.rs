//! tests/bed
