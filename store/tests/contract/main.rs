//! The contract of the store, over real SQLite files: what a second database behind the same interface has to keep.

#[cfg(test)]
mod append;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod follow;
#[cfg(test)]
mod forget;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod inbox;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod session;
#[cfg(test)]
mod visit;
