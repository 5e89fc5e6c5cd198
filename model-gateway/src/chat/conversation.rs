//! What was said so far, append-only, with its provider encoding built once and appended to.
//!
//! **Invariants:** texts are shared and never copied; two user messages never stand next to each other (they are
//! joined, which endpoints with strict alternation need and no other minds); an assistant message without words and
//! calls is never kept; the ids of calls are unique over the whole conversation. The one change that is no append is a
//! tool result that is replaced by a shortened form, or a user message that is joined: the encoding from there on is
//! thrown away and made again by the next call.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ambit_core::limit::MESSAGE_CHARS;

use crate::chat::turn::RawCall;

/// Encodings kept at once, one a target that was asked; the one made first is dropped for a further one.
const ENCODINGS_MAX: usize = 4;
/// Longest id of a call that is kept as the provider gave it, in bytes; a longer one is replaced.
const CALL_ID_MAX: usize = 128;
/// What a model reads in place of a result without any text: many endpoints refuse blank content.
const EMPTY_RESULT: &str = "(the tool returned nothing)";

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The caller's words.
    User {
        /// What was said.
        text: Arc<str>,
    },
    /// A turn of the model.
    Assistant {
        /// What it said, if anything.
        text: Option<Arc<str>>,
        /// The calls it asked for, in order.
        calls: Vec<RawCall>,
        /// What its provider wants echoed, opaque: see [`Turn::carry`](crate::Turn::carry).
        carry: Option<Arc<str>>,
    },
    /// The one result of a call.
    Tool {
        /// The id of the call.
        call_id: Arc<str>,
        /// The tool.
        tool: Arc<str>,
        /// What the model reads.
        text: Arc<str>,
    },
}

/// What an encoder is given: the instructions, or one message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item<'a> {
    /// The instructions, always first.
    System(&'a str),
    /// A message.
    Message(&'a Message),
}

/// Instructions and messages of one session.
pub struct Conversation {
    system: Arc<str>,
    messages: Vec<Message>,
    /// Ids of all calls in it.
    ids: HashSet<Arc<str>>,
    chars: u64,
    encodings: Mutex<Vec<Encoding>>,
}

/// A conversation in the bytes of one target's dialect: JSON objects separated by commas.
pub(crate) struct Encoding {
    key: Arc<str>,
    bytes: Vec<u8>,
    /// End of the instructions.
    system_end: usize,
    /// End of each encoded message.
    ends: Vec<usize>,
}

impl Conversation {
    /// Begins a conversation under these instructions; empty ones are not sent.
    #[must_use]
    pub fn new(system: impl Into<Arc<str>>) -> Self {
        let system = system.into();
        let chars = count(&system) + MESSAGE_CHARS;
        Self { system, messages: Vec::new(), ids: HashSet::new(), chars, encodings: Mutex::new(Vec::new()) }
    }

    /// The instructions.
    #[must_use]
    pub const fn system(&self) -> &Arc<str> {
        &self.system
    }

    /// All messages, in order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Characters of instructions and messages, framing included as the machine counts it.
    #[must_use]
    pub const fn chars(&self) -> u64 {
        self.chars
    }

    /// Adds words of the caller; behind other words of the caller they join those, after an empty line.
    pub fn push_user(&mut self, text: impl Into<Arc<str>>) {
        let text = text.into();
        self.chars += count(&text) + MESSAGE_CHARS;
        if let Some(Message::User { text: before }) = self.messages.last_mut() {
            *before = format!("{before}\n\n{text}").into();
            let changed = self.messages.len() - 1;
            self.forget_from(changed);
        } else {
            self.messages.push(Message::User { text });
        }
    }

    /// Adds a turn of the model. One without words and calls is not kept: no endpoint wants to read it.
    ///
    /// The calls come with the names and arguments under which they were resolved, and with the ids of
    /// [`Turn::calls`](crate::Turn::calls), which are unique.
    pub fn push_assistant(&mut self, text: Option<Arc<str>>, calls: Vec<RawCall>, carry: Option<Arc<str>>) {
        let text = text.filter(|text| !text.is_empty());
        if text.is_none() && calls.is_empty() {
            return;
        }
        self.chars += MESSAGE_CHARS + text.as_deref().map_or(0, count) + carry.as_deref().map_or(0, count);
        for call in &calls {
            self.chars += count(&call.arguments) + MESSAGE_CHARS;
            self.ids.insert(Arc::clone(&call.id));
        }
        self.messages.push(Message::Assistant { text, calls, carry });
    }

    /// Adds the result of a call of the last turn, in the order in which the calls were asked for.
    pub fn push_tool_result(&mut self, call_id: impl Into<Arc<str>>, tool: impl Into<Arc<str>>, text: impl Into<Arc<str>>) {
        let mut text = text.into();
        if text.trim().is_empty() {
            text = EMPTY_RESULT.into();
        }
        self.chars += count(&text) + MESSAGE_CHARS;
        self.messages.push(Message::Tool { call_id: call_id.into(), tool: tool.into(), text });
    }

    /// Replaces the result of a call by a shortened form. `false` if there is no such result.
    pub fn shorten(&mut self, call_id: &str, shortened: impl Into<Arc<str>>) -> bool {
        let found = self.messages.iter_mut().enumerate().find_map(|(index, message)| match message {
            Message::Tool { call_id: id, text, .. } if **id == *call_id => Some((index, text)),
            Message::Tool { .. } | Message::User { .. } | Message::Assistant { .. } => None,
        });
        let Some((index, text)) = found else { return false };
        let shortened = shortened.into();
        if *text != shortened {
            self.chars = self.chars.saturating_sub(count(text)).saturating_add(count(&shortened));
            *text = shortened;
            self.forget_from(index);
        }
        true
    }

    /// Gives every call an id that is unique here: an empty, overlong or used one is replaced, always by the same one.
    pub(crate) fn settle_ids(&self, calls: &mut [RawCall]) {
        let mut new: HashSet<Arc<str>> = HashSet::with_capacity(calls.len());
        for call in calls {
            let is_fit = |id: &str, new: &HashSet<Arc<str>>| {
                !id.is_empty() && id.len() <= CALL_ID_MAX && !self.ids.contains(id) && !new.contains(id)
            };
            let mut n = self.ids.len() + new.len() + 1;
            // Ends: each turn tries another id, and only finitely many are taken.
            while !is_fit(&call.id, &new) {
                call.id = format!("call_{n}").into();
                n += 1;
            }
            new.insert(Arc::clone(&call.id));
        }
    }

    /// The index of the message at whose end a notice is told: the last one if it is a tool's result, else the last
    /// words of the caller.
    pub(crate) fn notice_index(&self) -> Option<usize> {
        let last = self.messages.len().checked_sub(1)?;
        match &self.messages[last] {
            Message::Tool { .. } | Message::User { .. } => Some(last),
            Message::Assistant { .. } => self.messages.iter().rposition(|message| matches!(message, Message::User { .. })),
        }
    }

    /// Brings the encoding under `key` up to date and lends it to `read`. What was encoded before is not encoded again.
    pub(crate) fn encoded<R>(&self, key: &Arc<str>, encode: impl Fn(Item<'_>, &mut Vec<u8>), read: impl FnOnce(&Encoding) -> R) -> R {
        let mut encodings = self.lock();
        let place = encodings.iter().position(|encoding| encoding.key == *key).unwrap_or_else(|| {
            if encodings.len() == ENCODINGS_MAX {
                encodings.remove(0);
            }
            encodings.push(Encoding { key: Arc::clone(key), bytes: Vec::new(), system_end: 0, ends: Vec::new() });
            encodings.len() - 1
        });
        let encoding = &mut encodings[place];
        if encoding.bytes.is_empty() && !self.system.is_empty() {
            encode(Item::System(&self.system), &mut encoding.bytes);
            encoding.system_end = encoding.bytes.len();
        }
        for message in &self.messages[encoding.ends.len()..] {
            if !encoding.bytes.is_empty() {
                encoding.bytes.push(b',');
            }
            encode(Item::Message(message), &mut encoding.bytes);
            encoding.ends.push(encoding.bytes.len());
        }
        read(encoding)
    }

    fn forget_from(&mut self, index: usize) {
        for encoding in self.encodings.get_mut().unwrap_or_else(PoisonError::into_inner) {
            encoding.truncate(index);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Encoding>> {
        self.encodings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Encoding {
    /// All of it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where one message stands, without the comma before it.
    pub(crate) fn range(&self, index: usize) -> Range<usize> {
        self.start(index)..self.ends[index]
    }

    fn start(&self, index: usize) -> usize {
        let before = index.checked_sub(1).map_or(self.system_end, |before| self.ends[before]);
        if before == 0 { 0 } else { before + 1 }
    }

    fn truncate(&mut self, index: usize) {
        if index < self.ends.len() {
            let before = index.checked_sub(1).map_or(self.system_end, |before| self.ends[before]);
            self.bytes.truncate(before);
            self.ends.truncate(index);
        }
    }
}

/// Sizes alone: what was said does not belong in a log.
impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation").field("messages", &self.messages.len()).field("chars", &self.chars).finish_non_exhaustive()
    }
}

fn count(text: &str) -> u64 {
    text.chars().count() as u64
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn call(id: &str) -> RawCall {
        RawCall::new(id, "look", "{}")
    }

    fn render(item: Item<'_>, out: &mut Vec<u8>) {
        let text = match item {
            Item::System(text) => format!("<s:{text}>"),
            Item::Message(Message::User { text }) => format!("<u:{text}>"),
            Item::Message(Message::Assistant { text, calls, .. }) => format!("<a:{}+{}>", text.as_deref().unwrap_or(""), calls.len()),
            Item::Message(Message::Tool { call_id, text, .. }) => format!("<t:{call_id}:{text}>"),
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// What the encoding says now, and how many items had to be encoded for it.
    fn encoded(conversation: &Conversation) -> (String, u32) {
        let made = Cell::new(0);
        let counting = |item: Item<'_>, out: &mut Vec<u8>| {
            made.set(made.get() + 1);
            render(item, out);
        };
        let text = conversation.encoded(&"k".into(), counting, |encoding| String::from_utf8(encoding.bytes().to_vec()).unwrap());
        (text, made.get())
    }

    #[test]
    fn what_was_encoded_is_appended_to_and_only_redone_from_a_change_on() {
        let mut c = Conversation::new("be brief");
        c.push_user("hello");
        assert_eq!(encoded(&c), ("<s:be brief>,<u:hello>".into(), 2));
        c.push_assistant(None, vec![call("1"), call("2")], None);
        c.push_tool_result("1", "look", "long long text");
        c.push_tool_result("2", "look", "b");
        assert_eq!(encoded(&c), ("<s:be brief>,<u:hello>,<a:+2>,<t:1:long long text>,<t:2:b>".into(), 3));
        assert_eq!(encoded(&c).1, 0, "nothing changed");

        let before = c.chars();
        assert!(c.shorten("1", "long"));
        assert_eq!(c.chars(), before - 10);
        assert_eq!(encoded(&c), ("<s:be brief>,<u:hello>,<a:+2>,<t:1:long>,<t:2:b>".into(), 2));
        assert!(!c.shorten("9", "x"), "there is no such result");

        c.push_user("and now?");
        c.push_user("please");
        assert_eq!(encoded(&c), ("<s:be brief>,<u:hello>,<a:+2>,<t:1:long>,<t:2:b>,<u:and now?\n\nplease>".into(), 1));
        c.push_user("soon");
        assert_eq!(encoded(&c).1, 1, "a joined message is encoded again, alone");
    }

    #[test]
    fn each_message_is_found_in_the_encoding_with_and_without_instructions() {
        for system in ["", "s"] {
            let mut c = Conversation::new(system);
            c.push_user("u");
            c.push_assistant(Some("a".into()), vec![], None);
            c.push_user("v");
            let parts = c.encoded(&"k".into(), render, |e| {
                (0..3).map(|i| String::from_utf8(e.bytes()[e.range(i)].to_vec()).unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(parts, ["<u:u>", "<a:a+0>", "<u:v>"], "{system:?}");
        }
    }

    #[test]
    fn encodings_are_bounded() {
        let c = Conversation::new("s");
        for key in 0..=ENCODINGS_MAX {
            c.encoded(&key.to_string().into(), render, |_| ());
        }
        assert_eq!(c.lock().len(), ENCODINGS_MAX);
    }

    #[test]
    fn ids_become_unique_over_the_conversation_and_stay_what_they_were_where_they_can() {
        let mut c = Conversation::new("");
        c.push_assistant(None, vec![call("call_1"), call("x")], None);
        let long = "y".repeat(CALL_ID_MAX);
        let longer = "y".repeat(CALL_ID_MAX + 1);
        let mut calls = [call("x"), call("z"), call("z"), call(""), call(&long), call(&longer)];
        c.settle_ids(&mut calls);
        let ids: Vec<_> = calls.iter().map(|call| &*call.id).collect();
        assert_eq!(ids, ["call_3", "z", "call_5", "call_6", &long, "call_8"]);
    }

    #[test]
    fn what_no_endpoint_wants_to_read_is_not_kept() {
        let mut c = Conversation::new("");
        c.push_assistant(Some("".into()), vec![], Some("{}".into()));
        assert!(c.messages().is_empty());
        c.push_tool_result("1", "look", " \n");
        assert_eq!(c.messages()[0], Message::Tool { call_id: "1".into(), tool: "look".into(), text: EMPTY_RESULT.into() });
    }

    #[test]
    fn nothing_that_was_said_shows_in_debug() {
        let mut c = Conversation::new("sekrit");
        c.push_user("sekrit");
        assert!(!format!("{c:?}").contains("sekrit"));
    }
}
