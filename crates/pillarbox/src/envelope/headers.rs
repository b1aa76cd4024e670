//! Headers: names and values beside the payload, in insertion order.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};

use crate::error::{Error, Result};

/// The maximum number of headers of an event.
pub const MAX_HEADERS: usize = 100;
/// The maximum size of a header, name and value together, in bytes: 8 KiB.
pub const MAX_HEADER: usize = 8192;
/// The maximum size of all headers of an event as JSON, in bytes: 64 KiB.
pub const MAX_HEADERS_SIZE: usize = 65_536;

/// The headers of an event.
///
/// Names are unique. Setting a header again replaces its value and keeps its position.
///
/// # Examples
/// ```
/// use pillarbox::Headers;
///
/// let mut headers = Headers::new();
/// headers.insert("source", "checkout")?;
///
/// assert_eq!(headers.get("source"), Some("checkout"));
/// assert!(headers.insert("x", "line\r\nbreak").is_err());
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    entries: Vec<(String, String)>,
    /// The size of the stored JSON without the opening brace.
    size: usize,
}

impl Headers {
    /// Creates an empty set of headers.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), size: 0 }
    }

    /// Sets a header.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the name is empty, the header has
    /// control characters or more than 8 KiB, it would be the 101st, or all headers together would
    /// have more than 64 KiB of JSON.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let (name, value) = (name.into(), value.into());
        check_header(&name, &value)?;
        let known = self.entries.iter().position(|(known, _)| *known == name);
        if known.is_none() && self.len() >= MAX_HEADERS {
            return Err(Error::invalid(format!(
                "header {name:?} is one too many, the limit is {MAX_HEADERS}"
            )));
        }
        let replaced = known.map_or(0, |index| entry_size(&self.entries[index]));
        let entry = (name, value);
        let size = self.size - replaced + entry_size(&entry);
        check_size(1 + size)?;
        self.size = size;
        match known {
            Some(index) => self.entries[index] = entry,
            None => self.entries.push(entry),
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.entries.retain(|(known, _)| known != name);
        self.size = self.entries.iter().map(entry_size).sum();
    }

    /// Returns the value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns an iterator over the headers, in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the number of headers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the size of the JSON that [`to_json`](Self::to_json) returns, in bytes.
    pub(crate) fn size(&self) -> usize {
        if self.is_empty() { 0 } else { 1 + self.size }
    }

    /// Returns the headers as a JSON object as stored in a row, or `None` if there are none.
    pub fn to_json(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        Some(serde_json::to_string(self).expect("names and values are plain strings"))
    }

    /// Parses a JSON object of strings.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is not an object of strings within
    /// the limits.
    pub fn from_json(text: &str) -> Result<Self> {
        check_size(text.len())?;
        serde_json::from_str(text).map_err(|source| {
            Error::invalid("the headers are not a JSON object of strings").caused_by(source)
        })
    }
}

/// Shows the names only: values must not appear in logs.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.iter().map(|(name, _)| name)).finish()
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeadersVisitor)
    }
}

/// Deserializes the headers in their order, which a map would lose.
struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with string values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = Headers::new();
        while let Some((name, value)) = map.next_entry::<String, String>()? {
            headers.insert(name, value).map_err(serde::de::Error::custom)?;
        }
        Ok(headers)
    }
}

fn check_header(name: &str, value: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("a header's name is empty"));
    }
    if name.chars().chain(value.chars()).any(char::is_control) {
        return Err(Error::invalid(format!(
            "header {:?} has a control character (CR, LF, NUL and the like are refused)",
            name.escape_default().to_string()
        )));
    }
    let size = name.len() + value.len();
    if size > MAX_HEADER {
        let start: String = name.chars().take(64).collect();
        return Err(Error::invalid(format!(
            "header {start:?} has {size} bytes, the limit is {MAX_HEADER}"
        )));
    }
    Ok(())
}

/// Returns the size of an entry in the stored JSON, with the comma or the closing brace after it.
/// Control characters are rejected, so only quotes and backslashes are escaped.
fn entry_size((name, value): &(String, String)) -> usize {
    let text = |text: &str| {
        let escapes = text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
        2 + text.len() + escapes
    };
    text(name) + text(value) + 2
}

fn check_size(size: usize) -> Result<()> {
    if size > MAX_HEADERS_SIZE {
        return Err(Error::invalid(format!(
            "the headers have {size} bytes as JSON, the limit is {MAX_HEADERS_SIZE}; \
             move large values to the payload"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_rejected() {
        for (name, value) in [("", "v"), ("n\r", "v"), ("n", "a\nb"), ("n", "\0"), ("n", "\u{85}")]
        {
            assert!(Headers::new().insert(name, value).is_err(), "{name:?} {value:?}");
        }
    }

    #[test]
    fn the_number_of_headers_is_limited() {
        let mut headers = Headers::new();
        (0..100).for_each(|n| headers.insert(format!("h{n}"), "v").unwrap());

        assert!(headers.insert("h100", "v").is_err());
        assert!(headers.insert("h99", "again").is_ok());
    }

    #[test]
    fn the_size_of_a_header_is_limited() {
        assert!(Headers::new().insert("n", "x".repeat(8191)).is_ok());
        assert!(Headers::new().insert("n", "x".repeat(8192)).is_err());
    }

    #[test]
    fn the_size_is_that_of_the_stored_json() {
        let mut headers = Headers::new();
        assert_eq!(headers.size(), 0);

        for (name, value) in [("a", ""), ("\"", "\\\\"), ("é", "\u{1f4ee}/"), ("a", "again")] {
            headers.insert(name, value).unwrap();
            assert_eq!(headers.size(), headers.to_json().unwrap().len());
        }
        headers.remove("\"");

        assert_eq!(headers.size(), headers.to_json().unwrap().len());
    }

    #[test]
    fn the_size_of_all_headers_is_limited() {
        let mut headers = Headers::new();
        (0..8).for_each(|n| headers.insert(format!("{n}"), "x".repeat(8000)).unwrap());
        let rest = MAX_HEADERS_SIZE - headers.size() - r#","n":"""#.len();
        headers.insert("n", "x".repeat(rest)).unwrap();
        let largest = headers.to_json().unwrap();
        assert_eq!(largest.len(), MAX_HEADERS_SIZE);

        let refused = headers.insert("n", "x".repeat(rest + 1)).unwrap_err().to_string();
        assert!(refused.contains("65537 bytes as JSON, the limit is 65536"), "{refused}");
        assert_eq!(headers.size(), MAX_HEADERS_SIZE, "a refused header changes nothing");
        headers.insert("n", "x".repeat(rest)).unwrap();

        assert_eq!(Headers::from_json(&largest).unwrap(), headers);
        let refused = Headers::from_json(&format!("{largest} ")).unwrap_err().to_string();
        assert!(refused.contains("65537 bytes as JSON, the limit is 65536"), "{refused}");
    }

    #[test]
    fn the_order_is_kept() {
        let text = r#"{"z":"1","a":"\"","m":""}"#;

        assert_eq!(Headers::from_json(text).unwrap().to_json().as_deref(), Some(text));
        assert!(Headers::from_json(r#"{"n":1}"#).is_err());
        assert!(Headers::from_json("[]").is_err());
    }
}
