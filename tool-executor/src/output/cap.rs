//! Cuts an output to what a model is given to read: the middle goes, head and tail stay, and it says how much is gone.
//!
//! JSON stays JSON where that is possible: long arrays, objects and strings lose their middle each, level by level,
//! until the whole fits. Only what still does not fit is cut as text.

use crate::output::clean::clean;
use crate::prepare::json::Json;

/// An output as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capped {
    /// At most as many bytes as the cap says.
    pub text: String,
    /// How many bytes of the cleaned output are gone; 0 if it is whole.
    pub gone: u64,
}

/// How much of an array, an object and a string is kept, tried from the most generous on.
const LEVELS: [Level; 8] = [
    Level { items: 128, bytes: 4_096 },
    Level { items: 64, bytes: 2_048 },
    Level { items: 32, bytes: 1_024 },
    Level { items: 16, bytes: 512 },
    Level { items: 8, bytes: 256 },
    Level { items: 4, bytes: 128 },
    Level { items: 2, bytes: 64 },
    Level { items: 1, bytes: 64 },
];

#[derive(Debug, Clone, Copy)]
struct Level {
    items: usize,
    bytes: usize,
}

/// Cleans a text and cuts it to at most `cap` bytes.
#[must_use]
pub fn cap(text: &str, cap: usize) -> Capped {
    let cleaned = clean(text);
    if cleaned.len() <= cap {
        return Capped { text: cleaned.into_owned(), gone: 0 };
    }
    let whole = cleaned.len();
    let text = shortened(&cleaned, cap).unwrap_or_else(|| cut(&cleaned, cap));
    Capped { gone: difference(whole, text.len()), text }
}

/// The JSON of the most generous level that fits; `None` if the text is no JSON or nothing fits.
fn shortened(text: &str, cap: usize) -> Option<String> {
    let json = Json::parse(text).ok()?;
    // A single string or number has no parts to choose from.
    if !matches!(json, Json::Array(_) | Json::Object(_)) {
        return None;
    }
    LEVELS.iter().find_map(|level| {
        // Strings are unescaped by now: what was hidden behind an escape is cleaned here.
        let text = clean(&shorten(&json, *level).to_text()).into_owned();
        (text.len() <= cap && Json::parse(&text).is_ok()).then_some(text)
    })
}

fn shorten(json: &Json, level: Level) -> Json {
    match json {
        Json::Null | Json::Bool(_) | Json::Number(_) => json.clone(),
        Json::String(text) if text.len() > level.bytes => Json::String(cut(text, level.bytes)),
        Json::String(_) => json.clone(),
        Json::Array(items) => {
            let mut kept: Vec<_> = items.iter().take(level.items).map(|item| shorten(item, level)).collect();
            if items.len() > level.items {
                kept.push(Json::String(format!("[.. {} more items ..]", items.len() - level.items)));
            }
            Json::Array(kept)
        }
        Json::Object(members) => {
            let mut kept: Vec<_> = members.iter().take(level.items).map(|(key, value)| (key.clone(), shorten(value, level))).collect();
            if members.len() > level.items {
                kept.push(("..".into(), Json::String(format!("[.. {} more members ..]", members.len() - level.items))));
            }
            Json::Object(kept)
        }
    }
}

/// Head and tail, two to one, around a line that says how many bytes are gone.
fn cut(text: &str, cap: usize) -> String {
    // The line with the largest count it can need; the true count is never longer.
    let line = |gone: usize| format!("\n[.. {gone} bytes left out ..]\n");
    let room = cap.saturating_sub(line(text.len()).len());
    if room == 0 {
        return text[..text.floor_char_boundary(cap)].to_owned();
    }
    let head = text.floor_char_boundary(room - room / 3);
    let tail = text.ceil_char_boundary(text.len() - room / 3);
    format!("{}{}{}", &text[..head], line(tail - head), &text[tail..])
}

fn difference(whole: usize, left: usize) -> u64 {
    u64::try_from(whole.saturating_sub(left)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_is_whole_and_one_byte_more_is_cut() {
        let text = "é".repeat(50);
        assert_eq!(cap(&text, 100), Capped { text: text.clone(), gone: 0 });
        let capped = cap(&text, 99);
        assert!(capped.text.len() <= 99, "{capped:?}");
        assert!(capped.text.contains("bytes left out") && capped.gone > 0, "{capped:?}");
        assert!(capped.text.starts_with('é') && capped.text.ends_with('é'));
    }

    #[test]
    fn the_line_says_how_many_bytes_are_gone() {
        let text: String = (0..10_000).map(|i| char::from(b'a' + u8::try_from(i % 26).unwrap())).collect();
        let capped = cap(&text, 1_000);
        let gone: usize = capped.text.split("[.. ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let (head, rest) = capped.text.split_once("\n[.. ").unwrap();
        let tail = rest.split_once("..]\n").unwrap().1;
        assert_eq!(head.len() + gone + tail.len(), text.len());
        assert!(text.starts_with(head) && text.ends_with(tail));
    }

    #[test]
    fn json_stays_json() {
        let rows: Vec<_> = (0..500).map(|i| serde_json::json!({"id": i, "text": "x".repeat(300), "big": 1})).collect();
        let text = serde_json::json!({"rows": rows, "total": 500}).to_string();
        let capped = cap(&text, 10_240);
        let value: serde_json::Value = serde_json::from_str(&capped.text).unwrap();
        assert_eq!(value["total"], 500);
        assert_eq!(value["rows"][0]["id"], 0);
        assert!(capped.text.contains("more items"), "{}", capped.text);
        assert!(capped.text.len() <= 10_240 && capped.gone > 100_000);
    }

    #[test]
    fn json_that_cannot_be_shortened_is_cut_as_text() {
        let key = "k".repeat(5_000);
        let capped = cap(&serde_json::json!({ key: 1 }).to_string(), 1_000);
        assert!(capped.text.contains("bytes left out"));
        assert!(capped.text.len() <= 1_000);
    }

    #[test]
    fn a_cap_without_room_for_the_line_cuts_the_head() {
        assert_eq!(cap("ééééé", 3).text, "é");
        assert_eq!(cap("abc", 0).text, "");
    }

    proptest! {
        #[test]
        fn never_more_than_the_cap(text in "(\\PC|\\n|\"|\\{|\\[|,){0,200}", bytes in 0_usize..300) {
            let capped = cap(&text, bytes);
            prop_assert!(capped.text.len() <= bytes);
            prop_assert_eq!(capped.gone == 0, clean(&text).len() <= bytes);
        }

        #[test]
        fn json_in_json_out(items in proptest::collection::vec("\\PC{0,40}", 40..80), bytes in 400_usize..700) {
            let capped = cap(&serde_json::json!(items).to_string(), bytes);
            prop_assert!(capped.text.len() <= bytes);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&capped.text).is_ok(), "{}", capped.text);
        }
    }
}
