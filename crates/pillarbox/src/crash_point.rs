//! Crash points: named steps at which a test can kill, fail or stop the process.
//!
//! They are for tests only, behind the feature `crash-points`; without it they compile to nothing.
//! Set `PILLARBOX_CRASH_AT=name:n:action` when the process starts: at the n-th pass through the
//! named point the process is killed (`kill`), panics (`panic`), gets a transient error (`error`),
//! or is stopped by SIGSTOP (`stop`).

/// Marks a crash point; `crash_point!("take.before"?)` can return an error.
macro_rules! crash_point {
    ($name:literal) => {
        #[cfg(feature = "crash-points")]
        $crate::crash_point::pass($name).ok();
    };
    ($name:literal ?) => {
        #[cfg(feature = "crash-points")]
        $crate::crash_point::pass($name)?;
    };
}

pub(crate) use crash_point;

#[cfg(feature = "crash-points")]
pub use self::armed::pass;
#[cfg(feature = "crash-points")]
pub use self::armed::{CRASH_POINTS, CrashPoint, VARIABLE};

#[cfg(feature = "crash-points")]
mod armed {
    use std::process::Command;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use crate::error::{Error, ErrorKind, Result};

    /// The environment variable that arms a crash point.
    pub const VARIABLE: &str = "PILLARBOX_CRASH_AT";

    /// One crash point.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CrashPoint {
        /// The step, then a dot and the position within it.
        pub name: &'static str,
        /// Whether it can return an error.
        pub fails: bool,
    }

    /// All crash points, in the order in which an event passes them.
    pub const CRASH_POINTS: &[CrashPoint] = &[
        fails("migrate.before"),
        fails("migrate.inside"),
        fails("migrate.noted"),
        fails("emit.before"),
        fails("emit.insert.before"),
        fails("emit.insert.after"),
        fails("emit.registered"),
        fails("emit.commit.before"),
        // The commit has happened, so no error may be returned.
        never_fails("emit.commit.after"),
        never_fails("emit.hook"),
        fails("emit.own.before"),
        fails("emit.own.after"),
        never_fails("hot.before"),
        never_fails("hot.between"),
        never_fails("hot.taken"),
        fails("hot.settle.before"),
        fails("hot.settle.after"),
        fails("hot.release.before"),
        fails("hot.release.after"),
        fails("hot.reclaim.before"),
        fails("hot.reclaim.after"),
        fails("join.before"),
        fails("join.after"),
        fails("take.before"),
        fails("take.inside"),
        fails("take.after"),
        fails("renew.before"),
        fails("renew.after"),
        fails("read.before"),
        fails("read.after"),
        fails("promote.before"),
        fails("promote.after"),
        fails("count.before"),
        fails("count.after"),
        fails("claim.before"),
        fails("claim.after"),
        fails("deliver.before"),
        fails("deliver.after"),
        fails("inbox.before"),
        fails("inbox.after"),
        // The engine has no caller to return an error to.
        never_fails("judge"),
        fails("settle.before"),
        fails("settle.inside"),
        fails("settle.after"),
        never_fails("settle.taken"),
        fails("rows.settle.before"),
        fails("rows.settle.after"),
        never_fails("rows.settle.taken"),
        fails("rows.renew.before"),
        fails("rows.renew.after"),
        fails("rows.release.before"),
        fails("rows.release.after"),
        never_fails("drain"),
        fails("release.before"),
        fails("release.after"),
        fails("leave.before"),
        fails("leave.inside"),
        fails("leave.after"),
        fails("purge.before"),
        fails("purge.inside"),
        fails("purge.after"),
        fails("operate.before"),
        fails("operate.inside"),
        fails("operate.after"),
    ];

    const fn fails(name: &'static str) -> CrashPoint {
        CrashPoint { name, fails: true }
    }

    const fn never_fails(name: &'static str) -> CrashPoint {
        CrashPoint { name, fails: false }
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let value = std::env::var(VARIABLE).ok()?;
        Some(
            Armed::parse(&value)
                .unwrap_or_else(|| panic!("{VARIABLE}={value} is invalid: expected name:n:action")),
        )
    });

    struct Armed {
        point: CrashPoint,
        nth: u32,
        action: Action,
        passed: AtomicU32,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Action {
        Kill,
        Panic,
        Error,
        Stop,
    }

    /// Passes a point, and crashes there if this pass is the armed one.
    ///
    /// # Errors
    /// When the point is armed with `error`.
    ///
    /// # Panics
    /// When the point is armed with `panic`, or the variable is malformed.
    pub fn pass(name: &'static str) -> Result<()> {
        match &*ARMED {
            Some(armed) if armed.point.name == name => armed.pass(),
            _ => Ok(()),
        }
    }

    impl Armed {
        fn parse(value: &str) -> Option<Self> {
            let mut parts = value.split(':');
            let (name, nth, action) = (parts.next()?, parts.next()?, parts.next()?);
            let action = match action {
                "kill" => Action::Kill,
                "panic" => Action::Panic,
                "error" => Action::Error,
                "stop" => Action::Stop,
                _ => return None,
            };
            let point = *CRASH_POINTS.iter().find(|point| point.name == name)?;
            let nth = nth.parse().ok()?;
            let is_possible = point.fails || action != Action::Error;
            is_possible.then_some(Self { point, nth, action, passed: AtomicU32::new(0) })
        }

        fn pass(&self) -> Result<()> {
            if self.passed.fetch_add(1, Ordering::Relaxed) + 1 != self.nth {
                return Ok(());
            }
            let name = self.point.name;
            // Tests wait for this line.
            eprintln!("crash point {name}: {:?}", self.action);
            match self.action {
                Action::Kill => signal("KILL"),
                Action::Stop => signal("STOP"),
                Action::Panic => panic!("crash point {name}"),
                Action::Error => {
                    return Err(Error::new(ErrorKind::Unavailable, format!("crash point {name}")));
                }
            }
            Ok(())
        }
    }

    /// Sends a signal to this process through the program `kill`, which avoids `unsafe`.
    fn signal(name: &str) {
        let pid = std::process::id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "cannot send SIG{name} to itself");
        // The signal may arrive with a delay; nothing may run until then.
        std::thread::sleep(Duration::from_millis(50));
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn only_a_complete_value_arms_a_point() {
            let armed = Armed::parse("settle.after:3:stop").unwrap();
            assert_eq!((armed.point.name, armed.nth), ("settle.after", 3));
            assert_eq!(armed.action, Action::Stop);

            for wrong in ["", "settle.after", "settle.after:3", "nowhere:1:kill", "drain:1:error"] {
                assert!(Armed::parse(wrong).is_none(), "{wrong}");
            }
        }

        #[test]
        fn an_armed_point_fails_once_at_the_nth_pass() {
            let armed = Armed::parse("take.before:2:error").unwrap();

            let failed: Vec<bool> = (0..4).map(|_| armed.pass().is_err()).collect();

            assert_eq!(failed, [false, true, false, false]);
        }
    }
}
