//! Amazon Web Services.
