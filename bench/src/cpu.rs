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

/// The CPU time that a process and all it has started have used so far, also those that have ended.
pub(crate) fn of_family(parent: u32) -> Option<Duration> {
    let own = stat(parent)?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let children = pids.filter(|pid| parent_of(*pid) == Some(parent));
    let living: Duration = children.filter_map(process).sum();
    Some(ticks(&own, Whose::Own)? + ticks(&own, Whose::EndedChildren)? + living)
}

/// Whether a process has this name, so that one of another machine is not taken for it.
pub(crate) fn is_called(pid: u32, name: &str) -> bool {
    let comm = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"));
    comm.is_ok_and(|comm| comm.trim_end() == name)
}

/// Who has started a process.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    let stat = stat(pid)?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn stat(pid: u32) -> Option<String> {
    fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()
}

/// Threads that live tell it exactly, but one that ends takes its time along; the whole process
/// forgets nothing, and tells it in ticks.
fn process(pid: u32) -> Option<Duration> {
    let dir = Path::new("/proc").join(pid.to_string());
    let whole = ticks(&stat(pid)?, Whose::Own)?;
    let threads = fs::read_dir(dir.join("task")).ok()?.flatten();
    let living = threads.filter_map(|thread| exact(&thread.path().join("schedstat"))).sum();
    Some(whole.max(living))
}

fn exact(schedstat: &Path) -> Option<Duration> {
    let text = fs::read_to_string(schedstat).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// Of a process itself, or of those it has started and seen end.
#[derive(Clone, Copy)]
enum Whose {
    Own = 11,
    EndedChildren = 13,
}

/// The name in parentheses may hold spaces: fields are counted after it.
fn ticks(stat: &str, whose: Whose) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(whose as usize);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TICK * (user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_14th_and_15th_field_whatever_the_name() {
        let stat = "17 (a (b) c) S 1 17 17 0 -1 4194560 100 0 0 0 25 4 7 3 20 0 1 0 99 0 0";

        assert_eq!(ticks(stat, Whose::Own), Some(Duration::from_millis(290)));
        assert_eq!(ticks(stat, Whose::EndedChildren), Some(Duration::from_millis(100)));
    }

    #[test]
    fn a_family_counts_a_child_that_has_ended() {
        let before = of_family(std::process::id()).unwrap();

        let mut child = std::process::Command::new("sh");
        child.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]);
        child.status().unwrap();

        assert!(of_family(std::process::id()).unwrap() > before);
    }
}
