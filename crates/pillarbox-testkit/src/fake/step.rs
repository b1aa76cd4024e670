//! Calls that are held where a test wants them, and go on when it says so.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::Call;

/// The limit of a wait for a call. No healthy test reaches it, on however busy a machine.
const LONGEST: Duration = Duration::from_secs(180);

/// On which side of the store a call is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It has not reached the store.
    Before,
    /// It has happened, and its answer is still under way.
    After,
}

/// A call that is held, or will be: see [`FaultyStore::hold`](super::FaultyStore::hold).
///
/// It goes on when this is dropped.
#[derive(Debug)]
#[must_use = "dropped, the call is not held"]
pub struct Step {
    call: Call,
    side: Side,
    reached: watch::Receiver<bool>,
    /// Its end is what the call waits for.
    _held: watch::Sender<()>,
}

impl Step {
    /// Waits until a call is held here.
    ///
    /// # Panics
    /// When none comes within three minutes.
    pub async fn reached(&mut self) {
        let reached = tokio::time::timeout(LONGEST, self.reached.wait_for(|it| *it)).await;
        let Self { call, side, .. } = self;
        assert!(matches!(reached, Ok(Ok(_))), "no {call:?} comes to be held {side:?} the store");
    }

    /// Lets the call go on.
    pub fn release(self) {}
}

/// Where the next calls are held.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<Vec<Gate>>);

#[derive(Debug)]
struct Gate {
    call: Call,
    side: Side,
    reached: watch::Sender<bool>,
    held: watch::Receiver<()>,
}

impl Gates {
    pub(super) fn close(self: &Arc<Self>, call: Call, side: Side) -> Step {
        let (reached, is_reached) = watch::channel(false);
        let (held, is_held) = watch::channel(());
        self.0.lock().unwrap().push(Gate { call, side, reached, held: is_held });
        Step { call, side, reached: is_reached, _held: held }
    }

    /// Waits at the first gate of this kind, if there is one.
    pub(super) async fn pass(&self, call: Call, side: Side) {
        let Some(mut gate) = self.first(call, side) else { return };
        gate.reached.send_replace(true);
        // Nothing is ever sent: it ends with its step.
        let _ = gate.held.changed().await;
    }

    fn first(&self, call: Call, side: Side) -> Option<Gate> {
        let mut gates = self.0.lock().unwrap();
        let at = gates.iter().position(|gate| gate.call == call && gate.side == side)?;
        Some(gates.remove(at))
    }
}
