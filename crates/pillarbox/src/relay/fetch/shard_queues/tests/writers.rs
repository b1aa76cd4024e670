//! Writers: what they emit, commit and hand over, and how the relay hears of it.

use super::*;

impl Sim {
    /// Writers of one key come one after the other; those of different keys commit in any order.
    pub(super) async fn emit(&mut self, key: usize, count: usize, hot: bool) {
        if self.open.contains_key(&key) {
            return;
        }
        // Small ones and large ones, as many of each, also within a transaction.
        let envelope = |nth: usize| {
            let payload = vec![0; if (nth + key / 2).is_multiple_of(2) { 1 } else { LARGEST }];
            let envelope = Envelope::bytes(["a", "a", "a", "b"][key % 4], payload).unwrap();
            envelope.key(Key::Given(format!("k{key}"))).unwrap()
        };
        let envelopes: Vec<_> = (0..count).map(envelope).collect();
        let mut tx = self.store.open();
        let held = self.queue.reserve(&envelopes).filter(|_| hot);
        let lease = held.as_ref().map(|held| held.hot());
        let insert = Insert { tables: &self.tables, envelopes: &envelopes, locks: &[], hot: lease };
        let places = OpenTx::insert(&mut tx, &insert).await.unwrap();
        let queue = self.queue.clone();
        let handover = held.map(|held| Handover::new(queue, held, places, &envelopes));
        self.open.insert(key, Open { tx, envelopes, handover });
    }

    pub(super) fn hand_over(&mut self) {
        let Some((handover, committed)) = self.handovers.pop_front() else { return };
        if committed.is_some_and(|envelopes| !handover.keep(&envelopes)) {
            self.queues.wake();
        }
    }

    /// As the loop does.
    pub(super) fn read_mail(&mut self) {
        while let Some(messages) = self.messages.try_next() {
            match messages {
                Message::Registered(rows) => {
                    rows.iter().for_each(|row| self.queues.register(row, instant()));
                }
                Message::Committed(events) => {
                    let mut are_taken = true;
                    events.into_iter().for_each(|event| are_taken &= self.queues.commit(event));
                    if !are_taken {
                        self.queues.wake();
                    }
                }
                Message::Withdrawn(rows) => {
                    rows.into_iter().for_each(|row| self.queues.withdraw(row));
                }
                Message::Leased(_) => unreachable!("events without a key are not written hot here"),
            }
        }
    }

    pub(super) async fn emit_free(&mut self) {
        let envelopes = [Envelope::json("free", &0).unwrap()];
        let mut tx = self.store.open();
        let insert = Insert { tables: &self.tables, envelopes: &envelopes, locks: &[], hot: None };
        Tx::insert(&mut tx, &insert).await.unwrap();
        tx.commit().unwrap();
        self.free.push(envelopes[0].event_id().clone());
    }

    pub(super) fn commit(&mut self, key: usize) {
        let Some(Open { tx, envelopes, handover }) = self.open.remove(&key) else { return };
        tx.commit().unwrap();
        let ids = envelopes.iter().map(|envelope| envelope.event_id().clone());
        self.committed.entry(key).or_default().extend(ids);
        self.handovers.extend(handover.map(|handover| (handover, Some(envelopes))));
    }
}
