//! A relay that falls silent in the middle of a move, with its session still open: what it has locked
//! is everybody's, and must not stay locked for as long as a network takes to notice.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::Arc;
use std::time::Duration;

use nemesis::bank::Bank;
use nemesis::deployment::{Deployment, Server, attach};
use nemesis::proxy::{Direction, Network, Proxy, authority};
use nemesis::scenario::{PROGRESS_TIMEOUT, wait_until};
use pillarbox::store::{AcquireShards, DeliveryMode, Join, Lease};
use pillarbox::{OwnerId, Store};

/// What every word takes on its way: a move has several with the lock in its hands.
const LATE: Duration = Duration::from_millis(400);

mod freeze {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_silent_mover_on_postgres_does_not_hold_the_others_up() {
        freeze(Server::Postgres).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_silent_mover_on_mysql_does_not_hold_the_others_up() {
        freeze(Server::Mysql).await;
    }
}

async fn freeze(server: Server) {
    let Some(base) = server.base() else { return };
    let deployment = Deployment::open(server, &base, "freeze", 1).await.unwrap();
    let proxy = Proxy::start(authority(&deployment.url).unwrap(), None).await.unwrap();
    let (silent, _) = attach(&proxy.in_front_of(&deployment.url).unwrap()).await.unwrap();
    let [silent_owner, successor] = [OwnerId::generate(), OwnerId::generate()];
    join(&silent, &silent_owner).await;
    join(&deployment.store, &successor).await;
    silent.acquire_shards(&take(&silent_owner, 0)).await.unwrap();
    proxy.set(Network::Delayed(LATE));
    // Again and again: whoever looks for the lock may be what it fails for.
    let moving = tokio::spawn(async move {
        loop {
            silent.acquire_shards(&take(&silent_owner, u16::MAX)).await.ok();
        }
    });
    wait_until(PROGRESS_TIMEOUT, async || Ok(is_locked(&deployment.bank).await)).await.unwrap();
    proxy.set(Network::Silent(Direction::Both));
    let held_up = deployment.store.acquire_shards(&take(&successor, 1)).await;
    assert!(held_up.is_err(), "nobody is held up: the test says nothing");

    let taken = wait_until(PROGRESS_TIMEOUT, async || {
        Ok(deployment
            .store
            .acquire_shards(&take(&successor, u16::MAX))
            .await
            .is_ok_and(|taken| !taken.is_empty()))
    });

    taken.await.expect("the shards can be taken again");
    moving.abort();
    drop(proxy);
    deployment.close().await.unwrap();
}

/// Whether somebody moves shards just now.
async fn is_locked(bank: &Bank) -> bool {
    let lock = "select id from outbox_setting where id = 1 for update nowait";
    match bank {
        Bank::Postgres(pool) => sqlx::query(lock).execute(pool).await.is_err(),
        Bank::Mysql(pool) => sqlx::query(lock).execute(pool).await.is_err(),
        Bank::Sqlite(_) => false,
    }
}

async fn join(store: &Arc<dyn Store>, owner: &OwnerId) {
    let lease = Lease { owner: owner.clone(), length: Duration::from_secs(3600), wants: u16::MAX };
    store.join(&Join { lease, mode: DeliveryMode::default() }).await.unwrap();
}

fn take(owner: &OwnerId, most: u16) -> AcquireShards {
    AcquireShards { owner: owner.clone(), most, owned: Vec::new() }
}
