//! The session machine from outside: scripts, the whole table, its promises, and journals that must replay for ever.
//!
//! One binary, since all of them share the kit. Nothing in here does I/O but `golden`, which reads its journals.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an onlooker names what it looks at; that nothing is forgotten is the table's own test"
)]

#[cfg(test)]
mod golden;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod promises;
#[cfg(test)]
mod script;
#[cfg(test)]
mod table;
