//! The URL of a store, from a file or the environment. Nothing is connected to.

use pillarbox::{ErrorKind, fuzzing};

/// Part of every password here, wherever it comes to stand.
const SECRET: &str = "hunter2";

/// A URL that can be read, or an error that says why not and does not show the password.
///
/// The input has four lines: what is before the password's colon, the password's beginning and end,
/// and what is behind its `@`.
pub fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let mut lines = text.splitn(4, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (before, beginning, end, behind) = (line(), line(), line(), line());
    let url = format!("{before}:{beginning}{SECRET}{end}@{behind}");
    // Read as it is, it may name anything.
    let _ = fuzzing::read_url(text);
    let Err(error) = fuzzing::read_url(&url) else { return };
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error}");
    let said = format!("{error} {error:?} {error:#?}");
    assert!(!said.contains(SECRET), "the password is shown: {said}");
}

/// Every product, with its parameters.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "postgres://app\n\n\n127.0.0.1:5432/shop?pooler=true&sslmode=require",
        "postgresql://app\npass\nword\n[::1]/shop?pooler=maybe&hostaddr=x&port=70000",
        "postgres://app\n\n\nlocalhost/shop?options[search_path]=a&statement-cache-capacity=-1",
        "postgres://app\n\n\n%2Frun%2Fpostgresql/shop?application_name=a@b",
        "mysql://app\np%40ss\n\ndb:3306/shop?ssl-mode=REQUIRED&charset=utf8mb4&timezone=%2B00:00",
        "mariadb://app\n\n\ndb/?socket=/run/mysqld.sock&collation=x",
        "sqlite\n//shop.db?mode=rwc&cache=shared&\n=1\n",
        "sqlite\n:memory:\n\n?immutable=maybe&vfs=unix",
        "oracle://app\n\n\ndb/shop",
        "memory\n\n\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
