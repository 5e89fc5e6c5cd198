//! Texts with places to fill in: `{name}`. A brace that is meant as one is doubled.

/// A text with places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Slot(String),
}

impl Template {
    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong with its braces.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.peek() == Some(&c) => {
                    chars.next();
                    plain.push(c);
                }
                '{' => {
                    let mut slot = String::new();
                    loop {
                        match chars.next() {
                            Some('}') => break,
                            Some(c) if c.is_alphanumeric() || c == '_' => slot.push(c),
                            Some(c) => return Err(format!("`{c}` inside of `{{{slot}`")),
                            None => return Err(format!("`{{{slot}` is not closed")),
                        }
                    }
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                    parts.push(Part::Slot(slot));
                }
                '}' => return Err("a `}` closes nothing".to_owned()),
                c => plain.push(c),
            }
        }
        parts.push(Part::Text(plain));
        Ok(Self(parts))
    }

    /// The names of its places.
    pub(super) fn slots(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Slot(slot) => Some(slot.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The text with every place filled; with nothing where there is no value.
    pub(super) fn fill(&self, value: impl Fn(&str) -> Option<String>) -> String {
        self.0
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Slot(slot) => value(slot).unwrap_or_default(),
            })
            .collect()
    }
}
