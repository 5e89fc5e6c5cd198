//! The message items of a response, from the events of its session: one for each turn that said something.
//!
//! Only the last can be the answer. A turn that goes on to call tools is `commentary`, closed before the next begins.
//! Streams and objects both come from here, so that they cannot disagree.

use ambit_core::SessionId;
use ambit_orchestrator::{Followed, Said, SessionView};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The items of one response, grown event by event.
#[derive(Debug, Clone)]
pub(crate) struct Items {
    id: SessionId,
    all: Vec<Item>,
    /// The step whose text the last item still takes.
    open: Option<Value>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ResponseItem)]
pub(crate) struct Item {
    /// `msg_<ULID>_<number>`.
    pub(crate) id: String,
    /// Always `message`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// `in_progress`, `completed`, or `incomplete` where it is cut.
    pub(crate) status: &'static str,
    /// Always `assistant`.
    role: &'static str,
    /// `commentary` where tools were called next, `final_answer` where not; null while nobody knows.
    phase: Option<&'static str>,
    pub(crate) content: Vec<Part>,
}

/// Text of a message.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ResponseText)]
pub(crate) struct Part {
    /// Always `output_text`.
    #[serde(rename = "type")]
    kind: &'static str,
    pub(crate) text: String,
    /// Always empty.
    #[schema(value_type = Vec<Object>)]
    annotations: [(); 0],
    /// Always empty.
    #[schema(value_type = Vec<Object>)]
    logprobs: [(); 0],
}

/// What an event changed. Items are told by their index.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Opened(usize),
    Said(usize, String),
    Closed(usize),
}

impl Items {
    pub(crate) const fn new(id: SessionId) -> Self {
        Self { id, all: Vec::new(), open: None }
    }

    /// What is known where the session's events cannot be had: the answer.
    pub(crate) fn of_answer(view: &SessionView) -> Self {
        let mut items = Self::new(view.id);
        if let Some(text) = view.output_text.as_deref().filter(|text| !text.is_empty()) {
            let cut = view.verdict.is_none_or(|verdict| verdict.status != ambit_core::Status::Completed);
            items.all.push(items.item(if cut { "incomplete" } else { "completed" }, Some("final_answer"), vec![Part::of(text)]));
        }
        items
    }

    pub(crate) fn all(&self) -> &[Item] {
        &self.all
    }

    /// True if nothing was said, or all of it was forgotten.
    pub(crate) fn is_blank(&self) -> bool {
        self.all.is_empty()
    }

    /// Hears the next event of the session.
    pub(crate) fn hear(&mut self, event: &Followed) -> Vec<Change> {
        match (&event.said, event.kind) {
            (Said::Value(said), kind) => self.take(kind, said),
            (Said::Session(_), _) if event.terminal => self.cut(),
            (Said::Session(_), _) => Vec::new(),
        }
    }

    fn take(&mut self, kind: &str, said: &Value) -> Vec<Change> {
        match kind {
            "output_text.delta" => {
                let text = said["delta"].as_str().unwrap_or_default();
                if text.is_empty() {
                    return Vec::new();
                }
                let mut changes = Vec::new();
                if self.open.as_ref() != Some(&said["step"]) {
                    // The step before was lost with its process.
                    changes.extend(self.cut());
                    self.open = Some(said["step"].clone());
                    self.all.push(self.item("in_progress", None, vec![Part::of("")]));
                    changes.push(Change::Opened(self.all.len() - 1));
                }
                if let Some(part) = self.all.last_mut().and_then(|item| item.content.first_mut()) {
                    part.text.push_str(text);
                }
                changes.push(Change::Said(self.all.len() - 1, text.to_owned()));
                changes
            }
            "model.finished" if self.open.as_ref() == Some(&said["step"]) => {
                let calls = said["calls"].as_u64().unwrap_or_default();
                let whole = matches!(said["finish"].as_str(), Some("stop" | "refusal"));
                let phase = if calls > 0 { "commentary" } else { "final_answer" };
                self.close(if whole { "completed" } else { "incomplete" }, Some(phase)).into_iter().collect()
            }
            "model.started" => self.cut(),
            _ => Vec::new(),
        }
    }

    /// No more events come: what is open stays cut.
    pub(crate) fn cut(&mut self) -> Vec<Change> {
        self.close("incomplete", None).into_iter().collect()
    }

    fn close(&mut self, status: &'static str, phase: Option<&'static str>) -> Option<Change> {
        self.open.take()?;
        let item = self.all.last_mut()?;
        (item.status, item.phase) = (status, phase);
        Some(Change::Closed(self.all.len() - 1))
    }

    fn item(&self, status: &'static str, phase: Option<&'static str>, content: Vec<Part>) -> Item {
        let id = format!("msg_{}_{}", self.id.ulid(), self.all.len());
        Item { id, kind: "message", status, role: "assistant", phase, content }
    }
}

impl Item {
    /// The item as it was before anything of it was said.
    pub(crate) fn opening(&self) -> Self {
        Self { status: "in_progress", phase: None, content: Vec::new(), ..self.clone() }
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        self.content.first().map_or("", |part| &part.text)
    }
}

impl Part {
    pub(crate) fn of(text: &str) -> Self {
        Self { kind: "output_text", text: text.to_owned(), annotations: [], logprobs: [] }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn items() -> Items {
        Items::new("ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse().unwrap())
    }

    #[test]
    fn each_turn_that_says_something_is_an_item_of_its_own() {
        let mut items = items();
        let mut changes = Vec::new();
        for (kind, said) in [
            ("model.started", json!({"step": 1})),
            ("output_text.delta", json!({"step": 1, "delta": "Let me "})),
            ("output_text.delta", json!({"step": 1, "delta": "look."})),
            ("model.finished", json!({"step": 1, "finish": "stop", "calls": 1})),
            ("tool.started", json!({"step": 2})),
            ("model.started", json!({"step": 3})),
            ("model.finished", json!({"step": 3, "finish": "stop", "calls": 1})),
            ("model.started", json!({"step": 5})),
            ("output_text.delta", json!({"step": 5, "delta": "All is "})),
            ("model.finished", json!({"step": 5, "finish": "length", "calls": 0})),
        ] {
            changes.extend(items.take(kind, &said));
        }
        let said = |index, text: &str| Change::Said(index, text.to_owned());
        let want = [
            Change::Opened(0),
            said(0, "Let me "),
            said(0, "look."),
            Change::Closed(0),
            Change::Opened(1),
            said(1, "All is "),
            Change::Closed(1),
        ];
        assert_eq!(changes, want);
        let shown: Vec<_> = items.all().iter().map(|item| (item.text(), item.status, item.phase)).collect();
        assert_eq!(shown, [("Let me look.", "completed", Some("commentary")), ("All is ", "incomplete", Some("final_answer"))]);
        assert_ne!(items.all()[0].id, items.all()[1].id);
    }

    #[test]
    fn a_turn_that_was_lost_is_closed_before_the_next() {
        for next in [("model.started", json!({"step": 2})), ("output_text.delta", json!({"step": 2, "delta": "x"}))] {
            let mut items = items();
            items.take("output_text.delta", &json!({"step": 1, "delta": "ha"}));
            assert_eq!(items.take(next.0, &next.1)[0], Change::Closed(0), "{next:?}");
            assert_eq!(items.all()[0].status, "incomplete");
        }
    }
}
