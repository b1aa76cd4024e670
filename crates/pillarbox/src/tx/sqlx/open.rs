//! A transaction that we began, and whose end we see.

use std::fmt;

use sqlx::Pool;

use super::private::Required;
use super::{Dialect, ended, require_transaction};
use crate::error::sqlx::number;
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::pooled::{PooledTx, has_ended};
use crate::tx::{Begin, Insert, Inserted, OpenTx};

/// An owned sqlx transaction, as `outbox.begin(&pool)` opens it.
pub struct SqlxTx<DB: Dialect>(PooledTx<DB>);

impl<DB: Dialect> SqlxTx<DB> {
    /// Nothing is written once sqlx believes the transaction over: it would commit by itself.
    async fn live(&mut self) -> Result<&mut DB::Connection> {
        require_transaction::<DB>(&self.0)?;
        if !self.0.is_sound().await {
            if self.0.has_ended {
                return Err(ended());
            }
            if self.0.is_lost {
                let message = "the connection was lost while a savepoint was rolled back";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            let message = "a statement was dropped half-way, what the transaction holds is unknown";
            return Err(Error::new(ErrorKind::NoTransaction, message));
        }
        Ok(&mut self.0)
    }
}

impl<DB: Dialect> fmt::Debug for SqlxTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlxTx").field(&self.0).finish()
    }
}

impl<DB: Dialect> Begin for &Pool<DB> {
    type Tx = SqlxTx<DB>;

    async fn begin(self) -> Result<SqlxTx<DB>> {
        Ok(SqlxTx(PooledTx::begin(self, Some(DB::BEGIN)).await?))
    }
}

impl<DB: Dialect> OpenTx for SqlxTx<DB> {
    type Connection = DB::Connection;

    fn connection(&self) -> &DB::Connection {
        &self.0
    }

    fn connection_mut(&mut self) -> &mut DB::Connection {
        &mut self.0
    }

    async fn insert(&mut self, insert: &Insert<'_>) -> Result<Vec<Option<Inserted>>> {
        DB::insert(self.live().await?, insert, Required::Begun).await
    }

    async fn prove(&mut self) -> Result<()> {
        DB::prove(self.live().await?, Required::Begun).await
    }

    async fn savepoint(&mut self) -> Result<()> {
        // On SQLite a savepoint outside of a transaction would begin one, and hide that ours ended.
        DB::prove(self.live().await?, Required::Any).await?;
        self.0.savepoint().await.map_err(refused)
    }

    async fn release(&mut self) -> Result<()> {
        self.live().await?;
        self.0.release().await.map_err(refused)
    }

    async fn rollback_to(&mut self) -> Result<()> {
        self.live().await?;
        self.0.rollback_to().await.map_err(refused)
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }

    async fn commit(self) -> Result<()> {
        self.0.commit().await.map_err(commit_failed)
    }

    async fn rollback(self) -> Result<()> {
        Ok(self.0.rollback().await?)
    }
}

fn refused(source: sqlx::Error) -> Error {
    if has_ended(&source) { ended().caused_by(source) } else { Error::from(source) }
}

/// An answer means that the database decided against it; silence means nobody knows.
fn commit_failed(source: sqlx::Error) -> Error {
    if has_ended(&source) {
        return refused(source);
    }
    let answered = match &source {
        sqlx::Error::Database(answer) => {
            let code = answer.code().unwrap_or_default();
            // A server that goes down may have committed before it said goodbye; MySQL, before
            // it was killed, or failed to write what else goes with a commit.
            let goodbye = ["08", "57P", "70100"].iter().any(|goodbye| code.starts_with(goodbye));
            !(code.len() == 5 && goodbye) && number(&**answer) != Some(1180)
        }
        _ => false,
    };
    if answered {
        return Error::from(source).leaving(TxFate::RolledBack);
    }
    let message = "the commit was sent and no answer came: it may or may not have happened";
    Error::new(ErrorKind::CommitUnknown, message).caused_by(source)
}
