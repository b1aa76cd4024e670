//! The memory of this process.

use std::fs;

/// Lets the peak begin anew; where that cannot be done, it is that of the whole run.
pub(crate) fn forget_peak() {
    // What `5` means: man 5 proc_pid_clear_refs.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The most that was resident since the peak began, in bytes.
pub(crate) fn peak() -> Option<u64> {
    in_status(&fs::read_to_string("/proc/self/status").ok()?)
}

fn in_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_among_the_other_lines() {
        let status = "Name:\tbench\nVmPeak:\t   999 kB\nVmHWM:\t     420 kB\nVmRSS:\t 100 kB\n";

        assert_eq!(in_status(status), Some(420 * 1024));
        assert_eq!(in_status("VmHWM:\tmuch\n"), None);
    }
}
