//! providers/kit
