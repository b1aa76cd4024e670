//! Opens the store for a URL.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::store::memory::MemoryStore;

/// Opens the store for a URL.
///
/// | URL | feature |
/// | --- | --- |
/// | `mysql://user@host/database`, `mariadb://…` | `mysql` |
/// | `postgres://user@host/database` | `postgres` |
/// | `sqlite://path/to/file.db`, `sqlite::memory:` | `sqlite` |
/// | `memory:` | none; for tests |
///
/// # Examples
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = pillarbox::connect("memory:").await?;
/// store.migrate().await?;
///
/// let error = pillarbox::connect("oracle://localhost/shop").await.unwrap_err();
/// assert!(error.to_string().contains("oracle"));
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Configuration`] for an unknown scheme or one whose cargo feature is disabled,
/// [`ErrorKind::Unavailable`] when the database cannot be reached.
///
/// # Cancel safety
/// This function is cancel safe.
pub async fn connect(url: &str) -> Result<Arc<dyn Store>> {
    match Product::of(url)? {
        Product::Memory => Ok(Arc::new(MemoryStore::new())),
        Product::Mysql => mysql(url).await,
        Product::Postgres => postgres(url).await,
        Product::Sqlite => sqlite(url).await,
    }
}

/// Parses a URL as [`connect`] does, without connecting.
#[cfg(feature = "fuzzing")]
pub(crate) fn read(url: &str) -> Result<()> {
    match Product::of(url)? {
        #[cfg(feature = "mysql")]
        Product::Mysql => crate::store::mysql::MysqlStore::options(url).map(drop),
        #[cfg(feature = "postgres")]
        Product::Postgres => crate::store::postgres::PostgresStore::options(url).map(drop),
        #[cfg(feature = "sqlite")]
        Product::Sqlite => crate::store::sqlite::SqliteStore::options(url).map(drop),
        _ => Ok(()),
    }
}

/// The database product.
enum Product {
    Memory,
    Mysql,
    Postgres,
    Sqlite,
}

impl Product {
    fn of(url: &str) -> Result<Self> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
        match &*scheme {
            "memory" => Ok(Self::Memory),
            "mysql" | "mariadb" => Ok(Self::Mysql),
            "postgres" | "postgresql" => Ok(Self::Postgres),
            "sqlite" => Ok(Self::Sqlite),
            // The message does not quote the URL, which may contain a password.
            "" => refuse("a store's URL begins with mysql://, postgres://, sqlite: or memory:"),
            other => refuse(format!(
                "no store for {other:?} URLs: use mysql://, postgres://, sqlite: or memory:"
            )),
        }
    }
}

#[cfg(feature = "mysql")]
async fn mysql(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(crate::store::mysql::MysqlStore::connect(url).await?))
}

#[cfg(not(feature = "mysql"))]
#[expect(clippy::unused_async, reason = "the same signature with and without the feature")]
async fn mysql(_: &str) -> Result<Arc<dyn Store>> {
    missing("mysql")
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(crate::store::postgres::PostgresStore::connect(url).await?))
}

#[cfg(not(feature = "postgres"))]
#[expect(clippy::unused_async, reason = "the same signature with and without the feature")]
async fn postgres(_: &str) -> Result<Arc<dyn Store>> {
    missing("postgres")
}

#[cfg(feature = "sqlite")]
async fn sqlite(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(crate::store::sqlite::SqliteStore::connect(url).await?))
}

#[cfg(not(feature = "sqlite"))]
#[expect(clippy::unused_async, reason = "the same signature with and without the feature")]
async fn sqlite(_: &str) -> Result<Arc<dyn Store>> {
    missing("sqlite")
}

#[cfg(not(all(feature = "mysql", feature = "postgres", feature = "sqlite")))]
fn missing(feature: &str) -> Result<Arc<dyn Store>> {
    refuse(format!(
        "{feature}: URLs need the cargo feature `{feature}`: \
         pillarbox = {{ version = \"…\", features = [\"{feature}\"] }}"
    ))
}

fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Configuration, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn error(url: &str) -> Error {
        connect(url).await.expect_err("the URL is wrong")
    }

    #[tokio::test]
    async fn the_error_of_a_wrong_url_shows_no_password() {
        for url in
            ["", "shop.db", "oracle://app:hunter2@db/shop", "mysql://app:hunter2@db:port/shop"]
        {
            let error = error(url).await;
            assert_eq!(error.kind(), ErrorKind::Configuration, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
        assert!(error("oracle://db/shop").await.to_string().contains("oracle"));
    }

    #[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    #[tokio::test]
    async fn a_password_with_a_question_mark_is_not_quoted_as_a_parameter() {
        for url in [
            "postgres://app:a?sslmode=hunter2@db/shop",
            "mysql://app:a?ssl-mode=hunter2@db/shop",
            "sqlite://app:a?hunter2@shop.db",
        ] {
            let error = error(url).await;
            assert_eq!(error.kind(), ErrorKind::Configuration, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
            assert!(error.to_string().contains("%3F"), "{error}");
        }
        assert!(error("postgres://db/shop?sslmode=off").await.to_string().contains("off"));
    }

    #[cfg(feature = "mysql")]
    #[tokio::test]
    async fn an_unreachable_mysql_server_and_a_url_without_a_database_differ() {
        let gone = error("mariadb://app:hunter2@127.0.0.1:1/shop").await;
        let no_database = error("mysql://app:hunter2@127.0.0.1:1/").await;

        assert_eq!(gone.kind(), ErrorKind::Unavailable);
        assert_eq!(no_database.kind(), ErrorKind::Configuration);
        assert!(no_database.to_string().contains("database"), "{no_database}");
        assert!(!format!("{gone:?} {no_database:?}").contains("hunter2"));
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn an_unreachable_server_and_an_invalid_url_differ() {
        let gone = error("postgres://app:hunter2@127.0.0.1:1/shop").await;
        let bad = error("postgres://app:hunter2@127.0.0.1:port/shop").await;

        assert_eq!(gone.kind(), ErrorKind::Unavailable);
        assert_eq!(bad.kind(), ErrorKind::Configuration);
        assert!(!format!("{gone:?} {bad:?}").contains("hunter2"));
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_named_as_the_cause() {
        let error = error("sqlite:///no/such/directory/shop.db").await;

        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("unable to open database file"), "{error}");
    }

    #[cfg(not(feature = "sqlite"))]
    #[tokio::test]
    async fn a_missing_feature_is_named() {
        assert!(error("sqlite://shop.db").await.to_string().contains("features = [\"sqlite\"]"));
    }
}
