//! One case: what crashes where, and what may come of it.

use pillarbox::crash_point::CrashPoint;

use super::run::CaseRun;
use super::situation::{MAX_UNSETTLED, Situation};
use crate::check::Report;
use crate::deployment::Server;
use crate::process::Program;

/// How a process crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    Kill,
    Panic,
    Error,
    Stop,
}

impl Crash {
    pub(super) const ALL: [Self; 4] = [Self::Kill, Self::Panic, Self::Error, Self::Stop];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Panic => "panic",
            Self::Error => "error",
            Self::Stop => "stop",
        }
    }
}

/// What happens where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) point: CrashPoint,
    pub(super) situation: Situation,
    pub(super) nth: u32,
    pub(super) crash: Crash,
}

/// Why a case shows nothing good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CaseError {
    /// The crash did not happen: it shows nothing at all.
    Invalid(String),
    /// A promise does not hold.
    Broken(String),
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for CaseError {
    fn from(error: E) -> Self {
        Self::Broken(error.into().to_string())
    }
}

/// What a case came to, or why it shows nothing good.
pub(super) type CaseResult<T = ()> = std::result::Result<T, CaseError>;

/// What came out.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) report: Report,
    /// Effects too few or too many.
    pub(super) wrong_effects: u64,
}

impl Case {
    /// Plays it in a place of its own, which is kept if something is wrong.
    pub(super) async fn play(
        self,
        server: Server,
        base: String,
        number: usize,
        program: Program,
    ) -> CaseResult<Outcome> {
        let mut play = CaseRun::open(self, server, &base, number, program).await?;
        let outcome = match play.run().await {
            Ok(()) => play.outcome().await,
            Err(wrong) => Err(wrong),
        };
        let kept = play.deployment.path().display().to_string();
        match outcome {
            Ok(outcome) => {
                play.deployment.close().await?;
                Ok(outcome)
            }
            Err(CaseError::Invalid(why)) => {
                Err(CaseError::Invalid(format!("{why} (kept: {kept})")))
            }
            Err(CaseError::Broken(why)) => Err(CaseError::Broken(format!("{why} (kept: {kept})"))),
        }
    }
}

impl Outcome {
    pub(super) fn judged(self, log: &str) -> CaseResult<Self> {
        let Report { committed, lost, ghosts, inversions, unexplained, worst, .. } = self.report;
        if committed == 0 {
            return Err(CaseError::Invalid("nothing was committed".to_owned()));
        }
        let bound = MAX_UNSETTLED as usize;
        let wrong = [
            ("lost", lost),
            ("ghosts", ghosts),
            ("out of order", inversions),
            ("unexplained duplicates", unexplained),
            ("duplicates beyond the bound", worst.saturating_sub(bound)),
            ("wrong effects", usize::try_from(self.wrong_effects).unwrap_or(usize::MAX)),
        ];
        let wrong = wrong.iter().filter(|(_, count)| *count > 0);
        let wrong: Vec<String> = wrong.map(|(what, count)| format!("{count} {what}")).collect();
        if wrong.is_empty() {
            return Ok(self);
        }
        eprint!("{}", self.report.excerpt(log));
        Err(CaseError::Broken(wrong.join(", ")))
    }
}
