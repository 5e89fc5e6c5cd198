//! Every bound of the fake, with its unit and reason.

/// Largest request head, in bytes: more than any client of ours sends.
pub const HEAD_MAX: usize = 64 * 1024;

/// Largest request body, in bytes: above every body limit of Ambit, so that a breach is recorded and not cut here.
pub const BODY_MAX: usize = 64 * 1024 * 1024;

/// Most bytes taken from a peer that goes on sending while its answer is being played.
pub const PIPELINED_MAX: usize = 1024 * 1024;

/// Most arrivals whose content is kept; later ones are only counted.
pub const RECORDED_MAX: usize = 20_000;

/// Most acts in one script, most repetitions `xN` of one act, most pieces of one body.
pub const ACTS_MAX: usize = 10_000;

/// Largest body a script may describe, in bytes.
pub const PAYLOAD_MAX: usize = 256 * 1024 * 1024;
