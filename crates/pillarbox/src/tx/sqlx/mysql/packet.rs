//! How large a statement may be: a server closes the connection over one that is larger than its
//! `max_allowed_packet`.

use sqlx::MySqlConnection;

use super::super::{MOST_BYTES, partition_key};
use crate::envelope::Envelope;
use crate::error::{Error, Result};

/// Statements up to this size are sent without asking what the server takes: no server is run with
/// less.
const UNASKED: usize = 512 * 1024;

/// Beyond its rows, a statement has less than this.
const HEAD: usize = 1024;

/// The largest sum of [`row`] that a statement may have, for these events.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the server does not take one of the
/// events, even alone.
pub(super) async fn most_bytes(
    connection: &mut MySqlConnection,
    envelopes: &[Envelope],
) -> Result<usize> {
    if envelopes.iter().map(row).sum::<usize>() <= UNASKED {
        return Ok(UNASKED);
    }
    let server: u64 = sqlx::query_scalar("select cast(@@max_allowed_packet as unsigned)")
        .fetch_one(connection)
        .await?;
    most_bytes_for(usize::try_from(server).unwrap_or(usize::MAX), envelopes)
}

fn most_bytes_for(server: usize, envelopes: &[Envelope]) -> Result<usize> {
    let most = server.saturating_sub(HEAD).min(MOST_BYTES);
    let Some(large) = envelopes.iter().find(|envelope| row(envelope) > most) else {
        return Ok(most);
    };
    Err(Error::invalid(format!(
        "an event with {} bytes of payload and headers does not fit into max_allowed_packet of the \
         server, which is {server}: raise that setting, or store the payload elsewhere and emit a \
         reference (event={})",
        large.size(),
        large.event_id()
    )))
}

/// At most as many bytes as an event takes in a statement: its values, and for each of its columns
/// a type, a length and a bit.
pub(super) fn row(envelope: &Envelope) -> usize {
    let texts = [
        Some(envelope.event_id().as_str()),
        Some(envelope.event_type().as_str()),
        Some(envelope.aggregate_type().as_str()),
        envelope.aggregate_id(),
        partition_key(envelope),
        envelope.tenant_id(),
        envelope.given_content_type(),
    ];
    let texts: usize = texts.into_iter().flatten().map(str::len).sum();
    envelope.size() + texts + 400
}

#[cfg(test)]
mod tests {
    use super::super::super::chunks;
    use super::*;
    use crate::error::ErrorKind;

    fn event(size: usize) -> Envelope {
        Envelope::bytes("large", vec![0; size]).unwrap()
    }

    #[test]
    fn statements_fit_into_the_packet_of_the_server() {
        let events = vec![event(300 * 1024); 20];

        for server in [400 * 1024, 1024 * 1024, 16 * 1024 * 1024] {
            let most = most_bytes_for(server, &events).unwrap();
            let statements: Vec<_> = chunks(&events, 500, most, row).collect();

            assert_eq!(statements.iter().map(|rows| rows.len()).sum::<usize>(), 20);
            for rows in statements {
                let bytes: usize = rows.iter().map(row).sum();
                assert!(HEAD + bytes <= server, "{bytes} bytes for a packet of {server}");
            }
        }
    }

    #[test]
    fn an_event_that_fits_into_no_packet_is_refused() {
        let events = [event(10), event(1024 * 1024)];

        let refused = most_bytes_for(1024 * 1024, &events).unwrap_err();

        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let said = refused.to_string();
        assert!(said.contains("max_allowed_packet of the server, which is 1048576"), "{said}");
        assert!(said.contains(&format!("event={}", events[1].event_id())), "{said}");
    }
}
