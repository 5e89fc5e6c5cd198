//! The only reader of files and environment: profiles, validation, the envelope.
