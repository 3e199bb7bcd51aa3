//! providers/fake
