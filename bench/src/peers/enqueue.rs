//! One business insert and one event in a transaction: ours, and peers that take plain SQL.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use pillarbox::Relay;
use sqlx::{AssertSqlSafe, PgPool};

use super::field::{Field, Filled};
use super::list::{PEERS, Peer};
use super::turns::{self, alternate, beside};
use crate::{
    Result,
    baseline::{Database, Emit, OURS, postgres::PostgresBench},
    case::{Bench, Case},
    event::OrderPlaced,
    figure::{Goal, Unit},
    measure::{Sample, metered, repeat},
};

const CONNECTIONS: usize = 8;

#[derive(Clone, Copy)]
enum Way {
    Ours,
    Hand(Emit),
    Peer(&'static Peer),
}

pub(super) async fn run(bench: &mut Bench<'_, PostgresBench>, field: &Field) -> Result {
    let name = "enqueue one per transaction, 8 connections, beside other systems";
    if !bench.wants(name) {
        return Ok(());
    }
    let peers: Vec<&Peer> = PEERS.iter().filter(|peer| peer.takes_sql).collect();
    let hands = [Emit::Baseline, Emit::Nothing].map(Way::Hand);
    let ways: Vec<Way> =
        [Way::Ours].into_iter().chain(hands).chain(peers.iter().copied().map(Way::Peer)).collect();
    let (database, slice) = (bench.database, bench.scale().slice);
    let samples = alternate(bench.scale().rounds, &ways, async |_, way: Way| {
        way.turn(database, field, slice).await
    })
    .await?;
    let [Ok(ours), Ok(hand), Ok(nothing), others @ ..] = &samples[..] else {
        return Err("a way is missing".into());
    };
    let case = Case {
        name,
        unit: Unit::Transactions,
        against: "the same transaction with a hand-written insert into a table like ours",
        goal: None,
    };
    let goal = Some(Goal::AtLeast(0.8));
    let mut figure = bench.figure(case, ours, hand)?.peer(
        "the transaction without an event",
        ours,
        nothing,
        goal,
    );
    for (peer, samples) in peers.iter().zip(others) {
        let label = turns::Way::label(&Way::Peer(peer));
        figure = beside(figure, &label, ours, samples, None);
    }
    bench.report(figure);
    Ok(())
}

impl Way {
    async fn turn(
        self,
        database: &PostgresBench,
        field: &Field,
        slice: Duration,
    ) -> Result<Sample> {
        match self {
            Self::Ours => ours(database, slice).await,
            Self::Hand(emit) => by_hand(database, emit, slice).await,
            Self::Peer(peer) => by_peer(database, field, peer, slice).await,
        }
    }
}

impl turns::Way for Way {
    fn label(&self) -> String {
        match self {
            Self::Ours => "emit".to_owned(),
            Self::Hand(Emit::Nothing) => "no event".to_owned(),
            Self::Hand(_) => "insert by hand".to_owned(),
            Self::Peer(peer) => format!("{} {}, its SQL", peer.name, peer.version),
        }
    }

    fn is_peer(&self) -> bool {
        matches!(self, Self::Peer(_))
    }
}

/// With the bell that tells relays of other processes, as peers tell theirs.
async fn ours(database: &PostgresBench, slice: Duration) -> Result<Sample> {
    database.clear().await?;
    let writer = Relay::writer_only(database.store(OURS)?);
    let outbox = writer.outbox();
    let writer = writer.spawn().await?;
    let (clone, next) = (database.clone(), Arc::new(AtomicI64::new(0)));
    let transaction = move || {
        let (database, outbox) = (clone.clone(), outbox.clone());
        let order = next.fetch_add(1, Ordering::Relaxed);
        async move { database.emit(&outbox, order, true).await.map(drop) }
    };
    let sample = meter(database, slice, transaction).await?;
    writer.stop().await?;
    all_there(sample, database.count(OURS, 0).await?)
}

async fn by_hand(database: &PostgresBench, emit: Emit, slice: Duration) -> Result<Sample> {
    database.clear().await?;
    let (clone, next) = (database.clone(), Arc::new(AtomicI64::new(0)));
    let transaction = move || {
        let (database, order) = (clone.clone(), next.fetch_add(1, Ordering::Relaxed));
        async move { database.transact(order, emit).await }
    };
    meter(database, slice, transaction).await
}

async fn by_peer(
    database: &PostgresBench,
    field: &Field,
    peer: &Peer,
    slice: Duration,
) -> Result<Sample> {
    let Filled { enqueue: Some(enqueue), enqueued: Some(enqueued) } = field.fill(peer, 0).await?
    else {
        return Err("it names no statement".into());
    };
    let pool = field.business(u32::try_from(CONNECTIONS)?).await?;
    let (clone, next) = (pool.clone(), Arc::new(AtomicI64::new(0)));
    let enqueue: Arc<str> = enqueue.into();
    let transaction = move || {
        let (pool, enqueue) = (clone.clone(), Arc::clone(&enqueue));
        let order = next.fetch_add(1, Ordering::Relaxed);
        async move { transact(&pool, &enqueue, order).await }
    };
    let sample = meter(database, slice, transaction).await?;
    let there: i64 = sqlx::query_scalar(AssertSqlSafe(enqueued)).fetch_one(&pool).await?;
    pool.close().await;
    all_there(sample, there.try_into()?)
}

/// One business insert, and the peer's own statement.
pub(super) async fn transact(pool: &PgPool, enqueue: &str, order: i64) -> Result {
    let mut tx = pool.begin().await?;
    let business = sqlx::query("insert into business (id, total) values ($1, $2)");
    business.bind(order).bind(1999_i64).execute(&mut *tx).await?;
    let payload = serde_json::to_string(&OrderPlaced::new(order))?;
    sqlx::query(AssertSqlSafe(enqueue.to_owned())).bind(payload).execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}

async fn meter<F>(
    database: &PostgresBench,
    slice: Duration,
    transaction: impl Fn() -> F + Clone + Send + 'static,
) -> Result<Sample>
where
    F: Future<Output = Result> + Send + 'static,
{
    metered(async || database.used_by_all().await, repeat(slice, CONNECTIONS, transaction)).await
}

fn all_there(sample: Sample, there: u64) -> Result<Sample> {
    if sample.count != there {
        return Err(format!("{} transactions, {there} events", sample.count).into());
    }
    Ok(sample)
}
