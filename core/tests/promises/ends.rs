//! Promise 4: counts the events, and sees to it that something is always awaited.

use ambit_core::session::{Command, Heard, Started};

use super::{Reference, Seen};
use crate::kit::Driver;

#[derive(Default)]
pub(super) struct Ends {
    applied: u32,
    most: Option<u32>,
}

impl Reference for Ends {
    fn begin(&mut self, started: &Started, _: &[Command]) {
        self.most = Some(started.limits.events_needed());
    }

    fn see(&mut self, seen: &Seen<'_>) {
        self.applied += u32::from(seen.heard == Heard::Applied);
        assert_eq!(seen.machine().events(), self.applied);
        assert!(Some(self.applied) <= self.most, "more events than the formula says");
        let awaited = seen.driver.open.iter().any(|open| !open.dropped);
        let machine = seen.machine();
        assert!(
            machine.is_closed() || machine.wake_at().is_some() || (machine.is_awaiting_approval() && awaited),
            "it would wait for ever"
        );
    }

    fn end(&mut self, driver: &Driver) {
        assert!(driver.machine.is_closed() && driver.machine.verdict().is_some());
    }
}
