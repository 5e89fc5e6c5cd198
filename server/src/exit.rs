//! Exit codes, as the documentation lists them.

use std::process::ExitCode;

use ambit_core::{Axis, Reason, Status, Verdict};

pub(crate) const DONE: u8 = 0;
pub(crate) const FAILURE: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const INCOMPLETE: u8 = 3;
pub(crate) const FAILED: u8 = 4;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const SATURATED: u8 = 75;
pub(crate) const CONFIG: u8 = 78;
pub(crate) const DEADLINE: u8 = 124;
pub(crate) const INTERRUPTED: u8 = 130;
pub(crate) const TERMINATED: u8 = 143;

/// What a session's verdict says to a shell.
pub(crate) fn of_verdict(verdict: &Verdict) -> ExitCode {
    ExitCode::from(match (verdict.status, verdict.reason) {
        (Status::Completed, _) => DONE,
        (Status::Incomplete, Reason::Limit(Axis::Deadline)) => DEADLINE,
        (Status::Failed, Reason::Saturated) => SATURATED,
        (Status::Failed, Reason::ModelUnavailable | Reason::StoreLost) => UNAVAILABLE,
        (Status::Cancelled, _) => INTERRUPTED,
        (Status::Incomplete, _) => INCOMPLETE,
        (Status::Failed, _) => FAILED,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_hears_how_a_session_ended() {
        let check = |status, reason, code| {
            let verdict = Verdict { status, reason, answer: None, cause: None, untouched: false };
            assert_eq!(of_verdict(&verdict), ExitCode::from(code), "{status} {reason}");
        };
        check(Status::Completed, Reason::Answered, 0);
        check(Status::Completed, Reason::Limit(Axis::Deadline), 0);
        check(Status::Incomplete, Reason::OutputTruncated, 3);
        check(Status::Incomplete, Reason::Limit(Axis::CostUsd), 3);
        check(Status::Incomplete, Reason::Limit(Axis::Deadline), 124);
        check(Status::Failed, Reason::Internal, 4);
        check(Status::Failed, Reason::ModelRejected, 4);
        check(Status::Failed, Reason::ModelUnavailable, 69);
        check(Status::Failed, Reason::StoreLost, 69);
        check(Status::Failed, Reason::Saturated, 75);
        check(Status::Cancelled, Reason::Cancelled, 130);
    }
}
