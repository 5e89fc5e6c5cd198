//! Addresses made of a template and arguments, in which an argument never leaves its place.
//!
//! Placeholders stand in path segments and query values only, so that host, port and credentials are the operator's
//! alone. A value is percent-encoded but for unreserved characters; a path segment that would become `.` or `..` is
//! refused, since every reader of addresses resolves those, encoded or not.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::json::Json;

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Longest address that is sent, in bytes: what common servers accept at most.
const URL_BYTES_MAX: usize = 8 << 10;

/// A template, taken apart at load.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    /// Scheme, host and port.
    origin: String,
    host: String,
    segments: Vec<Vec<Piece>>,
    /// Key (encoded) and value.
    query: Vec<(String, Vec<Piece>)>,
    /// The address itself where there is nothing to fill in: read once, not at every call.
    fixed: Option<Url>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(String),
}

/// Why an argument cannot stand in the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Name of the argument.
    pub(crate) name: String,
    /// Why not.
    pub(crate) reason: String,
}

impl Template {
    /// Takes a template apart, or says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("its url is not absolute")?;
        if !matches!(scheme, "http" | "https") {
            return Err(format!("its url has the scheme `{scheme}`; `http` and `https` are allowed"));
        }
        if rest.contains('#') {
            return Err("its url has a fragment, which is never sent".into());
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains(['{', '}']) {
            return Err("its url has a placeholder in the host: hosts are chosen by the configuration alone".into());
        }
        if authority.contains('@') {
            return Err("its url holds credentials; send them as a header".into());
        }
        let origin = format!("{scheme}://{authority}");
        let host = Url::parse(&origin).ok().and_then(|url| url.host_str().map(str::to_owned)).ok_or("its url has no valid host")?;
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let segments = path.strip_prefix('/').unwrap_or(path).split('/').map(pieces).collect::<Result<Vec<_>, _>>()?;
        if segments.iter().any(|segment| matches!(segment.as_slice(), [Piece::Text(text)] if is_dots(text))) {
            return Err("its url has a `.` or `..` segment".into());
        }
        let query = query
            .into_iter()
            .flat_map(|query| query.split('&'))
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                if key.contains(['{', '}']) {
                    return Err("its url has a placeholder in the name of a query parameter".to_owned());
                }
                Ok((key.to_owned(), pieces(value)?))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let this = Self { origin, host, segments, query, fixed: None };
        // What remains of the template with harmless values is a whole address, or nothing will ever be.
        let harmless =
            this.fill_with(|_| Ok("x".into()), Vec::new()).map_err(|misfit| format!("its url cannot be read: {}", misfit.reason))?;
        let fixed = this.places().is_empty().then_some(harmless);
        Ok(Self { fixed, ..this })
    }

    /// The names of its placeholders, each once.
    pub(crate) fn places(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .segments
            .iter()
            .chain(self.query.iter().map(|(_, value)| value))
            .flatten()
            .filter_map(|piece| match piece {
                Piece::Place(name) => Some(name.as_str()),
                Piece::Text(_) => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The host that every address of it has.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Scheme, host and port of every address of it.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// The path with its placeholders unfilled.
    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        for segment in &self.segments {
            path.push('/');
            for piece in segment {
                match piece {
                    Piece::Text(text) => path.push_str(text),
                    Piece::Place(name) => path.extend(["{", name, "}"]),
                }
            }
        }
        path
    }

    /// The address for these arguments; those of `rest` become query parameters.
    pub(crate) fn fill(&self, arguments: &[(String, Json)], rest: &[&(String, Json)]) -> Result<Url, Misfit> {
        if let Some(fixed) = self.fixed.as_ref().filter(|_| rest.is_empty()) {
            return Ok(fixed.clone());
        }
        let mut extra = Vec::new();
        for (name, value) in rest {
            match value {
                Json::Null => {}
                Json::Array(items) => extra.extend(items.iter().map(|item| (name.clone(), text_of(item)))),
                Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => extra.push((name.clone(), text_of(value))),
            }
        }
        self.fill_with(
            |name| {
                let value = arguments.iter().find(|(key, _)| key == name).map(|(_, value)| value);
                let misfit = |reason: &str| Misfit { name: name.to_owned(), reason: reason.to_owned() };
                match value {
                    None => Err(misfit("is missing")),
                    Some(Json::Null) => Err(misfit("is null")),
                    Some(Json::Array(_) | Json::Object(_)) => Err(misfit("becomes part of an address: give a string, number or boolean")),
                    Some(value @ (Json::Bool(_) | Json::Number(_) | Json::String(_))) => {
                        let text = text_of(value);
                        if text.is_empty() {
                            return Err(misfit("is empty"));
                        }
                        if text.chars().any(char::is_control) {
                            return Err(misfit("holds a control character"));
                        }
                        Ok(text)
                    }
                }
            },
            extra,
        )
    }

    fn fill_with(&self, value: impl Fn(&str) -> Result<String, Misfit>, extra: Vec<(String, String)>) -> Result<Url, Misfit> {
        let whole = |reason: String| Misfit { name: String::new(), reason };
        let mut text = self.origin.clone();
        for segment in &self.segments {
            text.push('/');
            let filled = join(segment, &value)?;
            if is_dots(&filled) {
                let name = segment.iter().find_map(|piece| match piece {
                    Piece::Place(name) => Some(name.clone()),
                    Piece::Text(_) => None,
                });
                return Err(Misfit { name: name.unwrap_or_default(), reason: "would lead to another folder".into() });
            }
            text.push_str(&filled);
        }
        let mut mark = '?';
        let mut pair = |key: &str, value: &str| {
            text.push(mark);
            mark = '&';
            text.push_str(key);
            text.push('=');
            text.push_str(value);
        };
        for (key, pieces) in &self.query {
            pair(key, &join(pieces, &value)?);
        }
        for (key, value) in extra {
            pair(&encode(&key), &encode(&value));
        }
        if text.len() > URL_BYTES_MAX {
            return Err(whole(format!("the address would have {} bytes, more than {URL_BYTES_MAX}", text.len())));
        }
        let url = Url::parse(&text).map_err(|error| whole(error.to_string()))?;
        // The proof: what the reader of addresses sees has the form of the template.
        let seen = url.path_segments().map_or(0, Iterator::count);
        if seen != self.segments.len() || url.host_str() != Some(&self.host) {
            return Err(whole("the address would not have the form of its template".into()));
        }
        Ok(url)
    }
}

fn join(pieces: &[Piece], value: &impl Fn(&str) -> Result<String, Misfit>) -> Result<String, Misfit> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(literal) => text.push_str(literal),
            Piece::Place(name) => text.push_str(&encode(&value(name)?)),
        }
    }
    Ok(text)
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A scalar as it stands in an address; anything else as JSON.
fn text_of(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => value.to_text(),
    }
}

/// True for what a reader of addresses takes for this folder or the one above, in any spelling.
fn is_dots(segment: &str) -> bool {
    matches!(segment.replace("%2e", ".").replace("%2E", ".").as_str(), "." | "..")
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((literal, tail)) = rest.split_once('{') {
        let (name, tail) = tail.split_once('}').ok_or("its url has a `{` without `}`")?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
            return Err(format!("its url has the placeholder `{{{name}}}`; names have letters, digits, `_` and `-`"));
        }
        if literal.contains('}') {
            return Err("its url has a `}` without `{`".into());
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.to_owned()));
        }
        pieces.push(Piece::Place(name.to_owned()));
        rest = tail;
    }
    if rest.contains('}') {
        return Err("its url has a `}` without `{`".into());
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(template: &str, arguments: &str) -> String {
        let Json::Object(arguments) = Json::parse(arguments).unwrap() else { panic!("an object") };
        let template = match Template::parse(template) {
            Ok(template) => template,
            Err(reason) => return format!("! {reason}"),
        };
        let places = template.places();
        let rest: Vec<_> = arguments.iter().filter(|(name, _)| !places.contains(&name.as_str())).collect();
        match template.fill(&arguments, &rest) {
            Ok(url) => url.to_string(),
            Err(misfit) => format!("? {} {}", misfit.name, misfit.reason),
        }
    }

    #[test]
    fn arguments_fill_their_place_and_the_rest_becomes_the_query() {
        for (template, arguments, expected) in [
            ("http://h/a/{id}", r#"{"id":"x"}"#, "http://h/a/x"),
            ("http://h:81/a/{id}/b?c={d}", r#"{"id":7,"d":true}"#, "http://h:81/a/7/b?c=true"),
            ("http://h/{id}", r#"{"id":"a/b?c#d%2e&=é "}"#, "http://h/a%2Fb%3Fc%23d%252e%26%3D%C3%A9%20"),
            ("http://h/{id}.json", r#"{"id":".."}"#, "http://h/...json"),
            ("http://h", r#"{"q":"a b&c","n":[1,2],"o":{"x":1},"z":null}"#, "http://h/?q=a%20b%26c&n=1&n=2&o=%7B%22x%22%3A1%7D"),
            ("http://h/p?k=v", r#"{"k":"w"}"#, "http://h/p?k=v&k=w"),
            ("http://h/{id}", r#"{"id":12345678901234567890123}"#, "http://h/12345678901234567890123"),
            ("http://h/{id}", r#"{"id":".."}"#, "? id would lead to another folder"),
            ("http://h/{id}", r#"{"id":"."}"#, "? id would lead to another folder"),
            ("http://h/.{id}", r#"{"id":"."}"#, "? id would lead to another folder"),
            ("http://h/{id}", r#"{"id":""}"#, "? id is empty"),
            ("http://h/{id}", r#"{"id":"a\nb"}"#, "? id holds a control character"),
            ("http://h/{id}", r#"{"id":[1]}"#, "? id becomes part of an address: give a string, number or boolean"),
            ("http://h/{id}", "{}", "? id is missing"),
            ("h/{id}", "{}", "! its url is not absolute"),
            ("ftp://h/", "{}", "! its url has the scheme `ftp`; `http` and `https` are allowed"),
            ("http://{h}/", "{}", "! its url has a placeholder in the host: hosts are chosen by the configuration alone"),
            ("http://u:p@h/", "{}", "! its url holds credentials; send them as a header"),
            ("http://h/#f", "{}", "! its url has a fragment, which is never sent"),
            ("http://h/{id", "{}", "! its url has a `{` without `}`"),
            ("http://h/id}", "{}", "! its url has a `}` without `{`"),
            ("http://h/{a b}", "{}", "! its url has the placeholder `{a b}`; names have letters, digits, `_` and `-`"),
            ("http://h/?{a}=b", "{}", "! its url has a placeholder in the name of a query parameter"),
            ("http://h/a/../b", "{}", "! its url has a `.` or `..` segment"),
            ("http:///", "{}", "! its url has no valid host"),
        ] {
            assert_eq!(check(template, arguments), expected, "{template} {arguments}");
        }
    }

    #[test]
    fn the_length_of_an_address_is_bounded_at_the_limit_and_one_past_it() {
        let with = |bytes: usize| check("http://h/{id}", &format!("{{\"id\":\"{}\"}}", "x".repeat(bytes - "http://h/".len())));
        assert!(with(URL_BYTES_MAX).starts_with("http"));
        assert!(with(URL_BYTES_MAX + 1).contains("more than"));
    }

    proptest! {
        #[test]
        fn a_value_never_leaves_its_place(value in "(\\.|/|%2e|\\\\|\\?|#|@|:|[a-z]|\\PC){1,12}", other in "\\PC{0,8}") {
            let template = Template::parse("https://host:8443/v1/{id}/sub?fixed=1").unwrap();
            let arguments = vec![("id".to_owned(), Json::String(value.clone())), ("other".to_owned(), Json::String(other.clone()))];
            let rest = vec![&arguments[1]];
            if let Ok(url) = template.fill(&arguments, &rest) {
                prop_assert_eq!(url.host_str(), Some("host"));
                prop_assert_eq!(url.port(), Some(8443));
                let segments: Vec<_> = url.path_segments().unwrap().collect();
                prop_assert_eq!(segments.len(), 3);
                prop_assert_eq!(segments[0], "v1");
                prop_assert_eq!(segments[2], "sub");
                prop_assert_eq!(percent_encoding::percent_decode_str(segments[1]).decode_utf8().unwrap(), value);
                let pairs: Vec<_> = url.query_pairs().collect();
                prop_assert_eq!(pairs.len(), 2);
                prop_assert_eq!(&*pairs[1].1, &*other);
                prop_assert_eq!(url.fragment(), None);
            }
        }
    }
}
