//! Cancellation at a chosen point: a future is polled a number of times and then dropped.

use std::{future::poll_fn, pin::pin, task::Poll};

/// Polls a future at most this many times, and drops it then.
///
/// Returns its output if it came to an end before that. Called with 0, 1, 2 and so on until it
/// does, every place where the future waits has been a place where it was dropped.
///
/// # Examples
/// ```
/// use pillarbox_testkit::fake::cut;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// assert_eq!(cut(0, async { 7 }).await, None);
/// assert_eq!(cut(1, tokio::task::yield_now()).await, None);
/// assert_eq!(cut(2, tokio::task::yield_now()).await, Some(()));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn cut<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
