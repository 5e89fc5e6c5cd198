//! Counts what comes about, so that the promises are not kept by nothing ever happening.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ambit_core::session::{Command, Event, Heard, Started};

use super::{Reference, Seen, is_overdue};
use crate::kit::Driver;

/// Counts what came about.
pub(super) struct Reach(pub(super) Rc<RefCell<BTreeMap<String, u32>>>);

impl Reach {
    fn count(&self, what: &str) {
        *self.0.borrow_mut().entry(what.to_owned()).or_default() += 1;
    }

    fn commands(&self, commands: &[Command]) {
        for command in commands {
            self.count(command.name());
            match command {
                Command::CallModel { last: Some(_), .. } => self.count("CallModel last"),
                Command::CallModel { nudge: true, .. } => self.count("CallModel nudge"),
                Command::CallTool { again: true, .. } => self.count("CallTool again"),
                Command::Finish(verdict) => self.count(&format!("{} {}", verdict.status, verdict.reason)),
                _ => {}
            }
        }
    }
}

impl Reference for Reach {
    fn begin(&mut self, _: &Started, commands: &[Command]) {
        self.commands(commands);
    }

    fn see(&mut self, seen: &Seen<'_>) {
        match seen.heard {
            Heard::Applied => self.count(seen.event.name()),
            Heard::Late => self.count("heard late"),
            Heard::Invalid => self.count("heard invalid"),
        }
        if is_overdue(seen) {
            self.count("overdue");
        }
        match seen.event {
            Event::Resumed if seen.settling && seen.heard == Heard::Applied => self.count("resumed while settling"),
            Event::Woke if seen.settling && seen.heard == Heard::Applied => self.count("woke while settling"),
            _ => {}
        }
        self.commands(seen.commands);
    }

    fn end(&mut self, driver: &Driver) {
        self.count(&format!("settlement {}", driver.machine.settlement()));
        *self.0.borrow_mut().entry("events in all".to_owned()).or_default() += driver.machine.events();
    }
}
