//! providers/api
