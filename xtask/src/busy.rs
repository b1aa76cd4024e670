//! Keeps the machine busy, as a build beside the tests would.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Threads that spin at normal priority until this is dropped. They end with the process, too.
#[derive(Debug)]
pub(crate) struct Busy {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Starts as many threads as there are cores.
    pub(crate) fn start() -> Self {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || while !is_over.load(Ordering::Relaxed) {})
        });
        let busy = Self { threads: threads.collect(), is_over };
        eprintln!("busy: {} spinning threads run beside the tests", busy.threads.len());
        busy
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Such a thread cannot panic.
            let _ = thread.join();
        }
        eprintln!("busy: the spinning threads have ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_for_each_core_runs_until_it_is_dropped() {
        let busy = Busy::start();
        let count = thread::available_parallelism().unwrap().get();
        assert_eq!(busy.threads.len(), count);
        assert!(busy.threads.iter().all(|thread| !thread.is_finished()));
        let is_over = Arc::clone(&busy.is_over);

        drop(busy);

        assert_eq!(Arc::strong_count(&is_over), 1, "every thread has ended");
    }
}
