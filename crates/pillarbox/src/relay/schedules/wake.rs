//! The wake: the real one, between writers and a reader that looks and waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::relay::schedules::{chance, play};
use crate::wake::Wake;

const WRITERS: usize = 3;

/// Something is committed, and then told.
fn write(wake: &Wake, rows: &Arc<AtomicUsize>) {
    for _ in 0..WRITERS {
        let (wake, rows) = (wake.clone(), Arc::clone(rows));
        tokio::spawn(async move {
            shuttle::thread::yield_now();
            rows.fetch_add(1, Ordering::SeqCst);
            shuttle::thread::yield_now();
            if chance(2) == 0 { wake.now() } else { wake.hear() }
        });
    }
}

/// A reader that also waits for other things; its waits are dropped as often as not.
pub(super) fn is_not_lost() {
    play(2, async {
        let (wake, rows, other) = (Wake::default(), Arc::default(), Arc::new(Notify::new()));
        write(&wake, &rows);
        let rings = Arc::clone(&other);
        tokio::spawn(async move {
            for _ in 0..2 {
                rings.notify_one();
                tokio::task::yield_now().await;
            }
        });

        let mut read = 0;
        while read < WRITERS {
            tokio::select! {
                () = wake.wait() => {
                    shuttle::thread::yield_now();
                    read = rows.load(Ordering::SeqCst);
                }
                () = other.notified() => {}
            }
        }
    });
}

/// Both bells ring for everything that was committed here, and for no more than that.
pub(super) fn counts_as_one() {
    play(2, async {
        let (wake, rows) = (Wake::default(), Arc::<AtomicUsize>::default());
        let (here, elsewhere) = (wake.clone(), wake.clone());
        for _ in 0..WRITERS {
            let (wake, rows) = (wake.clone(), Arc::clone(&rows));
            tokio::spawn(async move {
                rows.fetch_add(1, Ordering::SeqCst);
                wake.now();
            });
        }
        let (seen, told) = (Arc::clone(&rows), Arc::clone(&rows));
        let here = tokio::spawn(async move {
            let mut looks = 0;
            while seen.load(Ordering::SeqCst) < WRITERS {
                here.wait().await;
                looks += 1;
            }
            looks
        });
        let elsewhere = tokio::spawn(async move {
            let mut rings = 0;
            while told.load(Ordering::SeqCst) < WRITERS {
                elsewhere.wait_to_ring().await;
                rings += 1;
            }
            rings
        });

        let looks = here.await.expect("it was not aborted");
        let rings = elsewhere.await.expect("it was not aborted");

        assert!(looks <= WRITERS && rings <= WRITERS, "{looks} looks and {rings} rings");
    });
}
