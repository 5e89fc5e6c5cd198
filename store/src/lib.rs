//! The journal, sessions, content and inbox on SQLite.
