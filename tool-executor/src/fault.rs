//! What a transport answers, and the fate of what was sent: the facts from which the code of a result is made.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ambit_core::ToolCode;
use ambit_core::port::BeforeSend;
use ambit_resilience::{Failure, Outcome, Refuser};

/// A whole answer of a tool.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What it said, as it came.
    pub(crate) text: String,
    /// True if it says that it failed.
    pub(crate) is_error: bool,
}

/// Why an attempt brought no answer, with what the model may know about it.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What it means to the policy.
    pub(crate) failure: Failure,
    /// The code of the result, where the failure alone does not say it.
    pub(crate) code: Option<ToolCode>,
    /// For the model: what the other side said, or what to do.
    pub(crate) detail: Option<String>,
}

impl Fault {
    /// Nothing but what was seen.
    pub(crate) fn new(failure: Failure) -> Self {
        Self { failure, code: None, detail: None }
    }

    /// With the code of the result.
    pub(crate) fn with_code(mut self, code: ToolCode) -> Self {
        self.code = Some(code);
        self
    }

    /// With words for the model.
    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// We did not send it.
    pub(crate) fn refused(code: ToolCode, detail: impl Into<String>) -> Self {
        let name = code.as_str().to_ascii_lowercase();
        Self::new(Failure::new(Outcome::Refused(Refuser::Whole)).with_code(name)).with_code(code).with_detail(detail)
    }
}

/// The moment at which a call leaves. Shared by all attempts of one call.
///
/// A call that is no read asks once, directly before its first request, whether it may leave; and it keeps count of
/// requests whose fate nobody knows, so that a retry that failed harmlessly cannot hide an earlier one that may have
/// taken effect.
pub(crate) struct Departure<'a> {
    before: Option<&'a dyn BeforeSend>,
    asked: AtomicBool,
    allowed: AtomicBool,
    unsettled: AtomicU32,
}

impl<'a> Departure<'a> {
    /// Of a call that may leave any time.
    pub(crate) const fn of_read() -> Self {
        Self { before: None, asked: AtomicBool::new(false), allowed: AtomicBool::new(true), unsettled: AtomicU32::new(0) }
    }

    /// Of a call that has to ask.
    pub(crate) const fn of_write(before: &'a dyn BeforeSend) -> Self {
        Self { before: Some(before), asked: AtomicBool::new(false), allowed: AtomicBool::new(false), unsettled: AtomicU32::new(0) }
    }

    /// Waits until a request may leave, and counts it as on its way.
    ///
    /// # Errors
    /// A refusal if it must not leave any more.
    ///
    /// # Cancel safety
    /// A future dropped while it waits leaves the call refused: it is asked once, and nobody heard the answer.
    pub(crate) async fn leave(&self) -> Result<(), Fault> {
        if let Some(before) = self.before {
            if !self.asked.swap(true, Ordering::AcqRel) && before.before_send().await {
                self.allowed.store(true, Ordering::Release);
            }
            if !self.allowed.load(Ordering::Acquire) {
                return Err(Fault::refused(ToolCode::NotAttempted, "the session does not allow this call any more; nothing was sent"));
            }
        }
        self.unsettled.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Says that the fate of the request that left last is known.
    pub(crate) fn settle(&self) {
        // Never below zero: each settles what itself has counted.
        let _ = self.unsettled.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
    }

    /// True if some request may or may not have taken effect.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::Acquire) > 0
    }

    /// True if it was asked and nobody said yes.
    pub(crate) fn is_refused(&self) -> bool {
        self.asked.load(Ordering::Acquire) && !self.allowed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use ambit_core::port::BoxFuture;

    use super::*;

    struct Says(bool, AtomicU32);

    impl BeforeSend for Says {
        fn before_send(&self) -> BoxFuture<'_, bool> {
            self.1.fetch_add(1, Ordering::AcqRel);
            Box::pin(async { self.0 })
        }
    }

    struct Never;

    impl BeforeSend for Never {
        fn before_send(&self) -> BoxFuture<'_, bool> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_write_asks_once_whatever_the_answer() {
        for answer in [true, false] {
            let says = Says(answer, AtomicU32::new(0));
            let departure = Departure::of_write(&says);
            assert_eq!(departure.leave().await.is_ok(), answer);
            assert_eq!(departure.leave().await.is_ok(), answer);
            assert_eq!(says.1.load(Ordering::Acquire), 1);
            assert_eq!(departure.is_refused(), !answer);
            assert_eq!(departure.is_unsettled(), answer);
        }
    }

    #[tokio::test]
    async fn one_unknown_fate_outlives_a_harmless_retry() {
        let departure = Departure::of_read();
        departure.leave().await.unwrap();
        departure.leave().await.unwrap();
        departure.settle();
        assert!(departure.is_unsettled());
        departure.settle();
        departure.settle();
        assert!(!departure.is_unsettled());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_heard_is_a_no() {
        let departure = Departure::of_write(&Never);
        tokio::time::timeout(std::time::Duration::from_secs(1), departure.leave()).await.unwrap_err();
        assert!(departure.is_refused());
        assert!(departure.leave().await.is_err());
        assert!(!departure.is_unsettled());
    }
}
