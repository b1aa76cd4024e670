//! The CPU time of processes, to the nanosecond where the kernel tells it.

use std::{fs, path::Path, time::Duration};

/// What one tick of `utime` and `stime` is on every Linux that user programs see.
const TICK: Duration = Duration::from_millis(10);

/// The CPU time that processes have used so far; `None` when one of them cannot be seen, because
/// the server runs elsewhere.
pub(crate) fn of(pids: &[u32]) -> Option<Duration> {
    pids.iter().map(|pid| process(*pid)).sum()
}

/// The CPU time that this process has used so far.
pub(crate) fn own() -> Option<Duration> {
    process(std::process::id())
}

/// Threads that live tell it exactly, but one that ends takes its time along; the whole process
/// forgets nothing, and tells it in ticks.
fn process(pid: u32) -> Option<Duration> {
    let dir = Path::new("/proc").join(pid.to_string());
    let whole = ticks(&fs::read_to_string(dir.join("stat")).ok()?)?;
    let threads = fs::read_dir(dir.join("task")).ok()?.flatten();
    let living = threads.filter_map(|thread| exact(&thread.path().join("schedstat"))).sum();
    Some(whole.max(living))
}

fn exact(schedstat: &Path) -> Option<Duration> {
    let text = fs::read_to_string(schedstat).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// The name in parentheses may hold spaces: fields are counted after it.
fn ticks(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TICK * (user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_14th_and_15th_field_whatever_the_name() {
        let stat = "17 (a (b) c) S 1 17 17 0 -1 4194560 100 0 0 0 25 4 0 0 20 0 1 0 99 0 0";

        assert_eq!(ticks(stat), Some(Duration::from_millis(290)));
    }
}
