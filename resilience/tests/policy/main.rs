//! The composed policy: what it does, attempt by attempt and millisecond by millisecond, on a clock that tests own.

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod cancelled;
#[cfg(test)]
mod consequences;
#[cfg(test)]
mod kit;
