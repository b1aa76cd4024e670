//! Rows as bad as another program can insert them. A row's tenant names what is wrong with it.

use crate::deployment::Server;

/// Rows whose id no library would choose. They have keys, which they hold.
pub(super) const IDS: &str = "odd ids";
/// Well-formed rows behind them. They wait until an operator lets their keys go on.
pub(super) const FOLLOWERS: &str = "rows behind odd ids";
/// Rows that are never due, or that another program has leased to itself. They wait.
pub(super) const LATER: &str = "due or leased in another age";
/// Rows that an operator replaces while relays run.
pub(super) const REPLACED: &str = "replaced meanwhile";
/// Rows that are too large to be delivered.
pub(super) const LARGE: &str = "20 MiB";

const PAYLOADS: &str = "odd payloads";
const HEADERS: &str = "odd headers";
const STATES: &str = "odd states";
const KEYS: &str = "odd keys";
const TYPES: &str = "odd types";
const CONTENTS: &str = "odd content types";
const DATES: &str = "odd dates";

/// One row: what is wrong with it, columns and values.
pub(super) type Row = (&'static str, String, String);

/// An insert of a row. What it does not set is well-formed.
pub(super) fn insert((tenant, columns, values): &Row) -> String {
    let mut names = format!("tenant_id, aggregate_type, {columns}");
    let mut all = format!("'{tenant}', 'disturbance', {values}");
    if !columns.contains("event_type") {
        names += ", event_type";
        all += ", 'nemesis.disturbance'";
    }
    if !columns.contains("payload") {
        names += ", payload";
        all += ", '{\"id\": 1}'";
    }
    format!("insert into outbox_event ({names}) values ({all})")
}

/// All that are small, once each.
pub(super) fn small(server: Server) -> Vec<Row> {
    let row = |kind, columns: &str, values: String| (kind, columns.to_owned(), values);
    let text = |value: &str| format!("'{value}'");
    let mut rows = Vec::new();
    for (number, id) in ids().iter().enumerate() {
        let key = format!("'odd-{number}'");
        rows.push(row(IDS, "event_id, partition_key", format!("'{id}', {key}")));
        rows.push(row(FOLLOWERS, "partition_key", key));
    }
    rows.extend(payloads().iter().map(|it| row(PAYLOADS, "payload", text(it))));
    rows.extend(headers().iter().map(|it| row(HEADERS, "headers", text(it))));
    rows.extend(STATES_OF_ROWS.map(|(column, value)| row(STATES, column, value.to_owned())));
    let keys = [String::new(), " ".to_owned(), "a\nb".to_owned(), "ж".repeat(256)];
    rows.extend(keys.iter().map(|it| row(KEYS, "partition_key", text(it))));
    rows.push(row(KEYS, "aggregate_id", text("")));
    let types = ["no.such.type", "with space", "Wörd 😀", "a\nb", &"x".repeat(128)];
    rows.extend(types.map(|it| row(TYPES, "event_type", text(it))));
    let [bytes, none] = match server {
        Server::Postgres => ["'\\xff00'::bytea", "''::bytea"],
        Server::Mysql | Server::Sqlite => ["x'ff00'", "x''"],
    };
    let contents = ["", "application/x-unknown", "no type", "a\nb", &"ü".repeat(128)];
    for (content, bytes) in contents.iter().flat_map(|it| [(it, bytes), (it, none)]) {
        let values = format!("null, {bytes}, '{content}'");
        rows.push(row(CONTENTS, "payload, payload_bytes, content_type", values));
    }
    let own = match server {
        Server::Postgres => POSTGRES,
        Server::Mysql => MYSQL,
        Server::Sqlite => SQLITE,
    };
    rows.extend(own.iter().map(|(kind, columns, values)| row(kind, columns, (*values).to_owned())));
    rows
}

fn ids() -> [String; 5] {
    let junk = "!\"#$%&()*+,-./:;<=>?@[]^_|~ ".chars().cycle().take(36).collect();
    [String::new(), "order 7".to_owned(), "ключ-é".to_owned(), "a\nb".to_owned(), junk]
}

fn payloads() -> Vec<String> {
    let odd = [
        "[]",
        "17",
        "null",
        "\"text\"",
        "{}",
        "",
        "not json",
        "{\"id\": 1",
        "{\"id\": \"x\"}",
        "{\"id\": 1e400}",
        "{\"id\": 1, \"id\": 2}",
        "{\"id\": 1, \"a\": \"\\ud800\"}",
        "{\"id\": 1, \"a\": \"\\u0000\"}",
    ];
    let deep = "[".repeat(4000) + &"]".repeat(4000);
    odd.iter().map(|it| (*it).to_owned()).chain([deep]).collect()
}

fn headers() -> Vec<String> {
    let odd = [
        "[]",
        "17",
        "null",
        "\"text\"",
        "",
        "not json",
        "{\"a\": 1}",
        "{\"a\": null}",
        "{\"a\": {\"b\": 1}}",
        "{\"\": \"\"}",
        "{\"a\": \"\\u0000\"}",
        "{\"a\": \"\\ud800\"}",
        "{\"a\": \"1\", \"a\": \"2\"}",
    ];
    let many: Vec<String> = (0..1000).map(|number| format!("\"{number}\": \"\"")).collect();
    let long = "x".repeat(100_000);
    let large = [
        format!("{{{}}}", many.join(", ")),
        format!("{{\"{long}\": \"\"}}"),
        format!("{{\"a\": \"{long}\"}}"),
    ];
    odd.iter().map(|it| (*it).to_owned()).chain(large).collect()
}

const STATES_OF_ROWS: [(&str, &str); 8] = [
    ("attempts", "-5"),
    ("attempts", "2147483647"),
    ("crashes", "-7"),
    ("crashes", "2147483647"),
    ("lock_token", "-1"),
    ("lock_token", "2147483647"),
    ("event_version", "2147483647"),
    ("status", "2"),
];

const POSTGRES: &[(&str, &str, &str)] = &[
    (STATES, "crashes, locked_until", "-7, '2024-01-01'"),
    (DATES, "occurred_at", "'infinity'"),
    (DATES, "occurred_at", "'-infinity'"),
    (DATES, "occurred_at", "'20000-01-01'"),
    (DATES, "occurred_at", "'4000-01-01 BC'"),
    (DATES, "available_at", "'-infinity'"),
    (DATES, "available_at", "'4000-01-01 BC'"),
    (DATES, "created_at", "'infinity'"),
    (LATER, "available_at", "'infinity'"),
    (LATER, "available_at", "'20000-01-01'"),
    (LATER, "locked_by, locked_until", "'someone', 'infinity'"),
    (LATER, "locked_by, locked_until", "'someone', '9999-12-31'"),
    (LATER, "locked_until", "'9999-12-31'"),
];

const MYSQL: &[(&str, &str, &str)] = &[
    (STATES, "crashes, locked_until", "-7, '2024-01-01'"),
    (DATES, "occurred_at", "'0000-00-00 00:00:00'"),
    (DATES, "occurred_at", "'0001-01-01 00:00:00'"),
    (DATES, "occurred_at", "'9999-12-31 23:59:59.999999'"),
    (DATES, "occurred_at", "'2024-00-00 00:00:00'"),
    (DATES, "available_at", "'0000-00-00 00:00:00'"),
    (DATES, "available_at", "'2024-02-00 00:00:00'"),
    (DATES, "created_at", "'0000-00-00 00:00:00'"),
    (LATER, "available_at", "'9999-12-31 23:59:59.999999'"),
    (LATER, "locked_by, locked_until", "'someone', '9999-12-31 00:00:00'"),
    (DATES, "locked_by, locked_until", "'someone', '0000-00-00 00:00:00'"),
    (LATER, "locked_until", "'9999-12-31 00:00:00'"),
];

const SQLITE: &[(&str, &str, &str)] = &[
    (PAYLOADS, "payload", "cast(x'ff' as text)"),
    (PAYLOADS, "payload", "cast(x'7b00' as text)"),
    (HEADERS, "headers", "cast(x'7bff7d' as text)"),
    (TYPES, "event_type", "cast(x'c328' as text)"),
    (TYPES, "event_type", "x'ff'"),
    (KEYS, "partition_key", "cast(x'ff' as text)"),
    (CONTENTS, "content_type", "cast(x'ff' as text)"),
    (STATES, "crashes", "9223372036854775807"),
    (STATES, "crashes, locked_until", "-9223372036854775808, 1"),
    (STATES, "lock_token", "'many'"),
    (DATES, "occurred_at", "-62135596800000000"),
    (DATES, "occurred_at", "253402300799999999"),
    (DATES, "occurred_at", "'2024-01-01'"),
    (DATES, "available_at", "-62135596800000000"),
    (DATES, "created_at", "9223372036854775807"),
    (DATES, "created_at", "-9223372036854775808"),
    (LATER, "available_at", "253402300799999999"),
    (LATER, "locked_by, locked_until", "'someone', 9223372036854775807"),
    (LATER, "locked_by, locked_until", "'someone', 253402300799999999"),
    (LATER, "locked_until", "9223372036854775807"),
];

/// Rows of 20 MiB, made by the database itself, in each column that has no limit. MySQL refuses a
/// value above `max_allowed_packet`, so that its rows are large in two columns.
pub(super) fn large(server: Server, count: usize) -> Vec<Row> {
    let shapes: [(&str, &str); 3] = match server {
        Server::Postgres => [
            ("payload", "to_json(repeat('x', 20971520))"),
            ("payload, payload_bytes", "null, convert_to(repeat('x', 20971520), 'UTF8')"),
            ("headers", "json_build_object('h', repeat('x', 20971520))"),
        ],
        Server::Mysql => [
            (
                "payload, headers",
                "repeat('1', 15728640), concat('{\"h\": \"', repeat('x', 5242880), '\"}')",
            ),
            (
                "payload, payload_bytes, headers",
                "null, repeat('x', 15728640), repeat('x', 5242880)",
            ),
            (
                "payload, headers",
                "repeat('1', 5242880), concat('{\"h\": \"', repeat('x', 15728640), '\"}')",
            ),
        ],
        Server::Sqlite => [
            ("payload", "replace(hex(zeroblob(10485760)), '0', '1')"),
            ("payload, payload_bytes", "null, zeroblob(20971520)"),
            ("headers", "'{\"h\": \"' || hex(zeroblob(10485760)) || '\"}'"),
        ],
    };
    let shapes = shapes.iter().cycle().take(count);
    shapes.map(|(columns, values)| (LARGE, (*columns).to_owned(), (*values).to_owned())).collect()
}

/// Rows for an operator to replace.
pub(super) fn replaced(count: usize) -> Vec<Row> {
    (0..count)
        .map(|number| (REPLACED, "event_id".to_owned(), format!("'replaced-{number}'")))
        .collect()
}

/// What an operator does to one of them, by hand and without a thought of who else may do what.
pub(super) fn replace(row: &Row) -> [String; 3] {
    let id = &row.2;
    [
        format!("update outbox_event set payload = '{{\"id\": 2}}' where event_id = {id}"),
        format!("delete from outbox_event where event_id = {id}; {}", insert(row)),
        format!(
            "update outbox_event set status = 0, attempts = 0, done_at = null where event_id = {id}"
        ),
    ]
}
