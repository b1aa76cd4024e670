//! Headers: short texts beside the payload, in the order they were given.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};

use crate::error::{Error, Result};

/// Most headers on one event.
pub const MAX_HEADERS: usize = 100;
/// Largest header, name and value together, in bytes: 8 KiB.
pub const MAX_HEADER: usize = 8192;

/// Names and values that travel with an event.
///
/// Names are unique; setting one again replaces its value and keeps its place.
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
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// No headers.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Sets a header.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the name is empty, the header has
    /// control characters or more than 8 KiB, or it would be the 101st.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let (name, value) = (name.into(), value.into());
        check_header(&name, &value)?;
        if let Some(header) = self.0.iter_mut().find(|(known, _)| *known == name) {
            header.1 = value;
            return Ok(());
        }
        if self.0.len() >= MAX_HEADERS {
            return Err(Error::invalid(format!(
                "header {name:?} is one too many, the limit is {MAX_HEADERS}"
            )));
        }
        self.0.push((name, value));
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// The value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All headers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers as a row keeps them: a JSON object, or nothing.
    pub fn to_json(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        Some(serde_json::to_string(self).expect("names and values are plain strings"))
    }

    /// Reads what [`to_json`](Self::to_json) or another language wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is not an object of texts within
    /// the limits.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|source| {
            Error::invalid("the headers are not a JSON object of texts").caused_by(source)
        })
    }
}

/// Shows the names only: values do not belong into logs.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
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
        deserializer.deserialize_map(InOrder)
    }
}

/// A map would sort or shuffle the names; this keeps them as they come.
struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object whose values are texts")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_split_a_protocol_is_refused() {
        for (name, value) in [("", "v"), ("n\r", "v"), ("n", "a\nb"), ("n", "\0"), ("n", "\u{85}")]
        {
            assert!(Headers::new().insert(name, value).is_err(), "{name:?} {value:?}");
        }
    }

    #[test]
    fn the_hundred_and_first_header_is_refused() {
        let mut headers = Headers::new();
        (0..100).for_each(|n| headers.insert(format!("h{n}"), "v").unwrap());

        assert!(headers.insert("h100", "v").is_err());
        assert!(headers.insert("h99", "again").is_ok());
    }

    #[test]
    fn a_header_may_have_eight_kibibytes() {
        assert!(Headers::new().insert("n", "x".repeat(8191)).is_ok());
        assert!(Headers::new().insert("n", "x".repeat(8192)).is_err());
    }

    #[test]
    fn order_survives_the_row() {
        let text = r#"{"z":"1","a":"\"","m":""}"#;

        assert_eq!(Headers::from_json(text).unwrap().to_json().as_deref(), Some(text));
        assert!(Headers::from_json(r#"{"n":1}"#).is_err());
        assert!(Headers::from_json("[]").is_err());
    }
}
