//! Several texts in one input.
//!
//! They are separated by a byte that no UTF-8 has. Two more of them say what a text cannot say, so
//! that a few changed bytes reach a value that is absent, or far beyond a limit.

/// Between two fields.
const NEXT: u8 = 0xff;
/// The first byte of a field that is absent.
const ABSENT: u8 = 0xfe;
/// The last but one byte of a field that is repeated; the last one, squared, says how often.
const REPEATED: u8 = 0xfd;

/// A little more than any limit.
const LONGEST: usize = 1_100_000;

/// The fields of an input, one after the other; after the last one all are absent.
#[derive(Debug)]
pub(crate) struct Fields<'a>(std::slice::Split<'a, u8, fn(&u8) -> bool>);

impl<'a> Fields<'a> {
    pub(crate) fn of(data: &'a [u8]) -> Self {
        Self(data.split(|byte| *byte == NEXT))
    }

    pub(crate) fn bytes(&mut self) -> Option<Vec<u8>> {
        match self.0.next()? {
            [ABSENT, ..] => None,
            [start @ .., REPEATED, times] => {
                let times = usize::from(*times).pow(2);
                Some(
                    start
                        .iter()
                        .copied()
                        .cycle()
                        .take((start.len() * times).min(LONGEST))
                        .collect(),
                )
            }
            whole => Some(whole.to_vec()),
        }
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A number in as many decimal digits as there are.
    pub(crate) fn number(&mut self) -> Option<i64> {
        self.text()?.parse().ok()
    }
}

/// The input of these fields.
pub(crate) fn joined<'a>(fields: impl IntoIterator<Item = Option<&'a str>>) -> Vec<u8> {
    let fields: Vec<&[u8]> =
        fields.into_iter().map(|field| field.map_or([ABSENT].as_slice(), str::as_bytes)).collect();
    fields.join(&NEXT)
}

/// A field that is this text so often, as a squared number says.
pub(crate) fn repeated(text: &str, root: u8) -> Vec<u8> {
    [text.as_bytes(), &[REPEATED, root]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart() {
        let data = [joined([Some("a"), None, Some("")]), vec![NEXT], repeated("xy", 2)].concat();

        let mut fields = Fields::of(&data);

        let texts: Vec<_> = (0..5).map(|_| fields.text()).collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(texts, [text("a"), None, text(""), text("xyxyxyxy"), None]);
    }
}
