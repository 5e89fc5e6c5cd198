//! Promise 6: plays the journal again from its written form.

use ambit_core::session::{Command, Event, Heard, Started, fingerprint};

use super::{Reference, Seen};
use crate::kit::Driver;

#[derive(Default)]
pub(super) struct Replay {
    started: Option<Started>,
    first: Vec<Command>,
}

impl Reference for Replay {
    fn begin(&mut self, started: &Started, commands: &[Command]) {
        self.started = Some(started.clone());
        self.first = commands.to_vec();
    }

    fn see(&mut self, _: &Seen<'_>) {}

    /// From the written form of what was applied: what was late or invalid has left no trace.
    fn end(&mut self, driver: &Driver) {
        let started = self.started.take().unwrap();
        let written = serde_json::to_string(&started).unwrap();
        let mut again = Driver::start(serde_json::from_str(&written).unwrap());
        assert_eq!(again.first, self.first);
        for entry in &driver.journal {
            again.at = entry.at;
            let event: Event = serde_json::from_str(&serde_json::to_string(&entry.event).unwrap()).unwrap();
            assert_eq!(event, entry.event, "an event survives being written");
            let (heard, commands) = again.tell(event);
            assert_eq!((heard, &commands), (Heard::Applied, &entry.commands));
            assert_eq!(fingerprint(&commands), fingerprint(&entry.commands));
        }
        let state = |driver: &Driver| {
            let machine = &driver.machine;
            (
                machine.verdict().copied(),
                *machine.spent(),
                machine.transcript().turns().to_vec(),
                machine.effects().to_vec(),
                machine.events(),
            )
        };
        assert_eq!(state(&again), state(driver));
        assert_eq!(format!("{:?}", again.machine), format!("{:?}", driver.machine), "down to the last field");
    }
}
