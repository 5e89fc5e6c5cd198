//! A session as a stream of OpenAI's response events: only types that its clients know, in their order, no `id:`.
//!
//! **Invariant:** the number of an event depends on the session alone. Each event but a piece of text takes one number,
//! a piece of text one for each byte, and has that of its last byte: however the text is cut, all that follows has the
//! same number, and whoever resumes behind one misses nothing and gets nothing twice.

use ambit_core::{Reason, Status};
use ambit_orchestrator::{Followed, Said, SessionView};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::http::openai::items::{Change, Item, Items, Part};
use crate::http::openai::responses::object::ResponseObject;
use crate::http::sse::Speech;

/// What one reader is told.
pub(crate) struct Narration {
    opening: ResponseObject,
    items: Items,
    began: bool,
    numbers: Numbers,
}

impl Narration {
    /// For a reader who has everything up to the number `after`.
    pub(crate) fn new(view: &SessionView, after: Option<u64>) -> Self {
        Self { opening: ResponseObject::opening(view), items: Items::new(view.id), began: false, numbers: Numbers { next: 0, after } }
    }

    fn begin(&mut self) -> Vec<Bytes> {
        if std::mem::replace(&mut self.began, true) {
            return Vec::new();
        }
        let response = json!({"response": self.opening});
        ["response.created", "response.in_progress"].iter().filter_map(|kind| self.numbers.fact(kind, response.clone())).collect()
    }

    fn tell(&mut self, changes: Vec<Change>) -> Vec<Bytes> {
        let (items, numbers) = (&self.items, &mut self.numbers);
        let mut told = Vec::new();
        for change in changes {
            match change {
                Change::Opened(index) => told.extend(opened(numbers, index, &items.all()[index]).into_iter().flatten()),
                Change::Said(index, text) => told.extend(numbers.text(&text, |delta| {
                    json!({"item_id": items.all()[index].id, "output_index": index, "content_index": 0, "delta": delta, "logprobs": []})
                })),
                Change::Closed(index) => told.extend(closed(numbers, index, &items.all()[index]).into_iter().flatten()),
            }
        }
        told
    }

    /// The terminal event. It is sent in any case: a stream without one does not end for its reader.
    fn end(&mut self, status: Status, response: &ResponseObject) -> Bytes {
        let kind = match status {
            Status::Completed => "response.completed",
            // OpenAI's clients know no event for what was cancelled; the status in the object says so.
            Status::Incomplete | Status::Cancelled => "response.incomplete",
            Status::Failed => "response.failed",
        };
        write(kind, self.numbers.next, json!({"response": response}))
    }
}

impl Speech for Narration {
    fn say(&mut self, event: &Followed) -> Vec<Bytes> {
        let mut told = self.begin();
        let changes = self.items.hear(event);
        told.extend(self.tell(changes));
        if let (Said::Session(view), true) = (&event.said, event.terminal) {
            let status = view.verdict.map_or(Status::Failed, |verdict| verdict.status);
            told.push(self.end(status, &ResponseObject::of(view, &self.items)));
        }
        told
    }

    fn give_up(&mut self, status: Status, reason: Reason) -> Vec<Bytes> {
        let mut told = self.begin();
        let changes = self.items.cut();
        told.extend(self.tell(changes));
        let response = self.opening.clone().given_up(status, reason, &self.items);
        told.push(self.end(status, &response));
        told
    }
}

fn opened(numbers: &mut Numbers, index: usize, item: &Item) -> [Option<Bytes>; 2] {
    [
        numbers.fact("response.output_item.added", json!({"output_index": index, "item": item.opening()})),
        numbers.fact(
            "response.content_part.added",
            json!({"item_id": item.id, "output_index": index, "content_index": 0, "part": Part::of("")}),
        ),
    ]
}

fn closed(numbers: &mut Numbers, index: usize, item: &Item) -> [Option<Bytes>; 3] {
    let place = |more: Value| {
        let mut said = json!({"item_id": item.id, "output_index": index, "content_index": 0});
        if let (Value::Object(said), Value::Object(more)) = (&mut said, more) {
            said.extend(more);
        }
        said
    };
    [
        numbers.fact("response.output_text.done", place(json!({"text": item.text(), "logprobs": []}))),
        numbers.fact("response.content_part.done", place(json!({"part": Part::of(item.text())}))),
        numbers.fact("response.output_item.done", json!({"output_index": index, "item": item})),
    ]
}

/// Counts events, and leaves out what the reader has.
struct Numbers {
    next: u64,
    /// The last number that the reader has.
    after: Option<u64>,
}

impl Numbers {
    fn fact(&mut self, kind: &str, said: Value) -> Option<Bytes> {
        let number = self.next;
        self.next += 1;
        self.after.is_none_or(|after| number > after).then(|| write(kind, number, said))
    }

    fn text(&mut self, text: &str, said: impl FnOnce(&str) -> Value) -> Option<Bytes> {
        let first = self.next;
        self.next += text.len() as u64;
        let seen = self.after.map_or(0, |after| after.saturating_add(1).saturating_sub(first));
        // A number inside a character was never given out; whoever makes one up gets the character.
        let from = text.floor_char_boundary(usize::try_from(seen).unwrap_or(usize::MAX));
        let rest = &text[from..];
        (!rest.is_empty()).then(|| write("response.output_text.delta", self.next - 1, said(rest)))
    }
}

fn write(kind: &str, number: u64, mut said: Value) -> Bytes {
    said["type"] = kind.into();
    said["sequence_number"] = number.into();
    // JSON has no line feeds of its own: one data line.
    Bytes::from(format!("event: {kind}\ndata: {said}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Facts are `.`, texts stand for themselves; what a reader behind `after` gets, each with its number.
    fn check(script: &[&str], after: Option<u64>, want: &[(u64, &str)]) {
        let mut numbers = Numbers { next: 0, after };
        let mut got = Vec::new();
        for part in script {
            let told = if *part == "." { numbers.fact(".", json!({})) } else { numbers.text(part, |text| json!({"delta": text})) };
            got.extend(told.map(|bytes| {
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                let said: Value = serde_json::from_str(text.lines().nth(1).unwrap().strip_prefix("data: ").unwrap()).unwrap();
                (said["sequence_number"].as_u64().unwrap(), said["delta"].as_str().unwrap_or(".").to_owned())
            }));
        }
        let got: Vec<_> = got.iter().map(|(number, text)| (*number, text.as_str())).collect();
        assert_eq!(got, want, "{script:?} behind {after:?}");
    }

    #[test]
    fn numbers_are_the_same_however_text_is_cut() {
        check(&[".", "hello", "."], None, &[(0, "."), (5, "hello"), (6, ".")]);
        check(&[".", "hel", "lo", "."], None, &[(0, "."), (3, "hel"), (5, "lo"), (6, ".")]);
    }

    #[test]
    fn whoever_resumes_misses_nothing_and_gets_nothing_twice() {
        check(&[".", "hello", "."], Some(0), &[(5, "hello"), (6, ".")]);
        check(&[".", "hello", "."], Some(3), &[(5, "lo"), (6, ".")]);
        check(&[".", "hello", "."], Some(5), &[(6, ".")]);
        check(&[".", "hello", "."], Some(6), &[]);
        check(&[".", "h", "ell", "o", "."], Some(3), &[(4, "l"), (5, "o"), (6, ".")]);
        check(&[".", "hello", "."], Some(u64::MAX), &[]);
    }

    #[test]
    fn a_number_inside_a_character_gives_the_character() {
        check(&["aé"], Some(0), &[(2, "é")]);
        check(&["aé"], Some(1), &[(2, "é")]);
        check(&["aé"], Some(2), &[]);
    }
}
