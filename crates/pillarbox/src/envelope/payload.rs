//! Payloads: JSON text or bytes, stored unchanged.

use std::fmt;

use serde::{Serialize, de::IgnoredAny};

use crate::error::{Error, Result};

/// The maximum size of a payload in bytes: 1 MiB.
pub const MAX_PAYLOAD: usize = 1_048_576;
/// The maximum nesting depth of a JSON payload.
///
/// Every reader supports this depth: serde_json up to 127, MySQL's JSON functions up to 100.
pub const MAX_JSON_DEPTH: usize = 100;

/// The payload of an event.
///
/// # Examples
/// ```
/// use pillarbox::Payload;
///
/// let json = Payload::json_text(r#"{"total": 12.50}"#)?;
/// let bytes = Payload::bytes(vec![0xff, 0x00])?;
///
/// assert_eq!(json.as_bytes(), br#"{"total": 12.50}"#);       // byte for byte
/// assert_eq!(bytes.as_bytes(), [0xff, 0x00]);
/// assert!(Payload::json_text("{").is_err());
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// Valid JSON text.
    Json(JsonText),
    /// Binary data.
    Bytes(Vec<u8>),
}

/// A text that is valid JSON within the size and depth limits.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(String);

impl Payload {
    /// Serializes a value as JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it cannot be serialized, or is too
    /// large or too deep.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let text = serde_json::to_string(value).map_err(|source| {
            Error::invalid("the payload cannot be serialized as JSON").caused_by(source)
        })?;
        check_size(text.len())?;
        check_depth(&text)?;
        Ok(Self::Json(JsonText(text)))
    }

    /// Creates a payload from JSON text, which is stored unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is not JSON, or is too large or
    /// too deep.
    pub fn json_text(text: impl Into<String> + AsRef<str>) -> Result<Self> {
        check_size(text.as_ref().len())?;
        // Checked first: the parser itself has no depth limit here.
        check_depth(text.as_ref())?;
        serde_json::from_str::<IgnoredAny>(text.as_ref())
            .map_err(|source| Error::invalid("the payload is not valid JSON").caused_by(source))?;
        Ok(Self::Json(JsonText(text.into())))
    }

    /// Creates a payload from bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when there are more than 1 MiB.
    pub fn bytes(bytes: impl Into<Vec<u8>> + AsRef<[u8]>) -> Result<Self> {
        check_size(bytes.as_ref().len())?;
        Ok(Self::Bytes(bytes.into()))
    }

    /// Returns the payload as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Json(text) => text.as_str().as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Returns the JSON text, if the payload is JSON.
    pub fn as_json(&self) -> Option<&str> {
        match self {
            Self::Json(text) => Some(text.as_str()),
            Self::Bytes(_) => None,
        }
    }
}

impl JsonText {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Shows the size only: payloads must not appear in logs.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(text) => text.fmt(f),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
        }
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

fn check_size(size: usize) -> Result<()> {
    if size > MAX_PAYLOAD {
        return Err(Error::invalid(format!(
            "the payload has {size} bytes, the limit is {MAX_PAYLOAD}; \
             store it elsewhere and emit a reference"
        )));
    }
    Ok(())
}

fn check_depth(text: &str) -> Result<()> {
    // Fast path: a text with so few brackets cannot be nested too deeply.
    let opened = text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if opened <= MAX_JSON_DEPTH {
        return Ok(());
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_JSON_DEPTH {
            return Err(Error::invalid(format!(
                "the payload is nested deeper than {MAX_JSON_DEPTH} levels"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_but_valid_json_is_stored_unchanged() {
        for text in [
            r#""\u0000""#,
            r#""\ud800""#,
            r#"{"a":1,"a":2}"#,
            "9007199254740993123456789",
            " [ 1 , 2 ] ",
            "1e999",
        ] {
            assert_eq!(Payload::json_text(text).unwrap().as_json(), Some(text));
        }
        for text in ["", "{", "nul", "'a'", "\"a\nb\"", "[1,]", "{} {}"] {
            assert!(Payload::json_text(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));

        assert!(Payload::json_text(nested(100)).is_ok());
        assert!(Payload::json_text(nested(101)).is_err());
        assert!(Payload::json_text(format!("\"\\\"{}\"", "[".repeat(500))).is_ok());
        assert!(Payload::json_text("[".repeat(1_000_000)).is_err());
    }

    #[test]
    fn one_mebibyte_is_the_limit() {
        let text = |size: usize| format!("\"{}\"", "x".repeat(size - 2));

        assert!(Payload::json_text(text(MAX_PAYLOAD)).is_ok());
        assert!(Payload::json_text(text(MAX_PAYLOAD + 1)).is_err());
        assert!(Payload::bytes(vec![0; MAX_PAYLOAD]).is_ok());
        assert!(Payload::bytes(vec![0; MAX_PAYLOAD + 1]).is_err());
    }

    #[test]
    fn debug_never_shows_the_content() {
        let payload = Payload::json(&"secret").unwrap();

        assert_eq!(format!("{payload:?}"), "Json(8 bytes)");
    }
}
