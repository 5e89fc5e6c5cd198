//! The orchestrator as its callers have it, in one process.

#[cfg(test)]
mod forget;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod leaving;
