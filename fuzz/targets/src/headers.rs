//! The `headers` column, which any language may have written.

use pillarbox::{ErrorKind, Headers};

use crate::sound::assert_headers;

/// Headers within their limits that come back as they went, or an error.
pub fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match Headers::from_json(text) {
        Ok(headers) => {
            assert_headers(&headers);
            let Some(written) = headers.to_json() else {
                assert!(headers.is_empty());
                return;
            };
            assert_eq!(Headers::from_json(&written).expect("what was written"), headers);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
    }
}

/// Both sides of every limit.
pub fn seeds() -> Vec<Vec<u8>> {
    let many = |count: usize| {
        let headers: Vec<String> = (0..count).map(|n| format!(r#""h{n}":"v""#)).collect();
        format!("{{{}}}", headers.join(","))
    };
    let long = |size: usize| format!(r#"{{"n":"{}"}}"#, "x".repeat(size - 1));
    let odd = r#"{"z":"1","a":"\"\u2028","m":"","z":"2"}"#.to_owned();
    let control = r#"{"n":"a\r\nb","\u0085":"\u0000"}"#.to_owned();
    let nested = r#"{"n":{"m":1}}"#.to_owned();
    [odd, control, nested, many(100), many(101), long(8192), long(8193)]
        .map(String::into_bytes)
        .to_vec()
}
