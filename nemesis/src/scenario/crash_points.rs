//! Crash points: at every named point a process is killed, panics, meets an error, or stands
//! still for longer than its lease. Each case has a database of its own and is counted by itself.

mod case;
mod run;
mod situation;

use std::collections::BTreeSet;
use std::time::Duration;

use pillarbox::crash_point::CRASH_POINTS;
use tokio::task::{JoinSet, LocalSet};

use self::case::{Case, CaseError, CaseResult, Crash, Outcome};
use self::situation::{MAX_UNSETTLED, Situation, is_there, situations};
use super::environment::{Environment, now};
use crate::Result;
use crate::check::Report;
use crate::deployment::Server;
use crate::finding::Finding;
use crate::rng::SeededRng;

/// Names the points to look at, by how they begin; without it, all of them count.
const ONLY: &str = "PILLARBOX_POINT";

/// So many cases side by side: most of a case is waiting for a lease to end.
const AT_ONCE: usize = 4;

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    let server = env.deployment.server;
    let all = cases(server);
    let mut chosen = all.clone();
    if let Ok(only) = std::env::var(ONLY) {
        chosen.retain(|case| case.point.name.starts_with(&only));
    } else {
        // A part of them is another part with another seed.
        let (part, mut rng) = (env.options.scale.pick(16, 4, 1), SeededRng::new(env.options.seed));
        chosen.retain(|_| rng.below(part) == 0);
    }
    let is_whole = chosen.len() == all.len();
    let mut matrix = CrashPointResults { results: Vec::new(), is_whole, slowest: Duration::ZERO };
    LocalSet::new().run_until(matrix.play(env, chosen)).await?;
    Ok(matrix.findings())
}

/// Every point in every scene that passes it, with every crash that can happen there.
fn cases(server: Server) -> Vec<Case> {
    let mut cases = Vec::new();
    for point in CRASH_POINTS.iter().filter(|point| is_there(point.name, server)) {
        for (situation, nth) in situations(point.name) {
            let crashes = Crash::ALL.into_iter().filter(|it| point.fails || *it != Crash::Error);
            let case = |crash| Case { point: *point, situation: *situation, nth: *nth, crash };
            cases.extend(crashes.map(case));
        }
    }
    cases
}

/// What came out of which case.
struct CrashPointResults {
    results: Vec<(Case, CaseResult<Outcome>)>,
    /// Whether that is every case there is.
    is_whole: bool,
    slowest: Duration,
}

impl CrashPointResults {
    async fn play(&mut self, env: &Environment, cases: Vec<Case>) -> Result {
        let mut under_way = JoinSet::new();
        for (number, case) in cases.into_iter().enumerate() {
            if under_way.len() >= AT_ONCE {
                self.take_in(under_way.join_next().await.ok_or("nothing is under direction")??);
            }
            let (server, base) = (env.deployment.server, env.options.base.clone());
            let program = env.options.program.clone();
            under_way.spawn_local(async move {
                let begun = now();
                (case, case.play(server, base, number, program).await, begun.elapsed())
            });
        }
        while let Some(played) = under_way.join_next().await {
            self.take_in(played?);
        }
        Ok(())
    }

    fn take_in(&mut self, (case, played, took): (Case, CaseResult<Outcome>, Duration)) {
        self.slowest = self.slowest.max(took);
        self.results.push((case, played));
    }

    fn findings(&self) -> Vec<Finding> {
        let mut found = vec![Finding::info("point", cells(Crash::ALL.map(Crash::name)))];
        for point in CRASH_POINTS {
            for (situation, _) in situations(point.name) {
                found.extend(self.line(point.name, *situation));
            }
        }
        found.extend(self.results.iter().filter_map(wrong));
        found.extend(self.totals());
        found.push(self.fenced());
        found
    }

    /// What each crash at one point came to in one scene.
    fn line(&self, point: &'static str, situation: Situation) -> Option<Finding> {
        let played = self
            .results
            .iter()
            .filter(|(it, _)| it.point.name == point && it.situation == situation);
        let played: Vec<_> = played.collect();
        let word = |crash: Crash| match played.iter().find(|(it, _)| it.crash == crash) {
            None => "-",
            Some((_, Ok(_))) => "ok",
            Some((_, Err(CaseError::Invalid(_)))) => "INVALID",
            Some((_, Err(CaseError::Broken(_)))) => "BROKEN",
        };
        if played.is_empty() {
            return None;
        }
        let is_well = played.iter().all(|(_, outcome)| outcome.is_ok());
        let what = format!("{point}, {}", situation.name());
        Some(Finding::guarantee(what, cells(Crash::ALL.map(word)), "", is_well))
    }

    /// Among all pauses some must have been outlasted by a verdict.
    fn fenced(&self) -> Finding {
        let what = "late verdicts fenced";
        let fenced = self.results.iter().filter_map(|(_, it)| it.as_ref().ok());
        let fenced = fenced.map(|it| it.report.fenced).sum();
        let found = if self.is_whole {
            Finding::must_happen(what, fenced)
        } else {
            Finding::info(what, fenced)
        };
        found.key("fenced")
    }

    fn points(&self) -> usize {
        let points: BTreeSet<&str> = self.results.iter().map(|(it, _)| it.point.name).collect();
        points.len()
    }

    fn totals(&self) -> Vec<Finding> {
        let well: Vec<&Outcome> =
            self.results.iter().filter_map(|(_, it)| it.as_ref().ok()).collect();
        let sum = |of: fn(&Report) -> usize| well.iter().map(|it| of(&it.report)).sum::<usize>();
        let worst = well.iter().map(|it| it.report.worst).max().unwrap_or(0);
        let bound = MAX_UNSETTLED as usize;
        let count = |is: fn(&CaseError) -> bool| {
            self.results.iter().filter_map(|(_, it)| it.as_ref().err()).filter(|it| is(it)).count()
        };
        vec![
            Finding::info("points", self.points()).key("points"),
            Finding::must_happen("cases", self.results.len()).key("cases"),
            Finding::must_be_zero("cases in which the crash did not happen", count(is_invalid))
                .key("invalid"),
            Finding::must_be_zero(
                "cases in which a promise was broken",
                count(|it| !is_invalid(it)),
            )
            .key("broken"),
            Finding::info("events committed", sum(|it| it.committed)).key("events"),
            Finding::info(
                "of them through the local queue",
                sum(|it| usize::try_from(it.from_local_queue).unwrap_or(0)),
            )
            .key("from_local_queue"),
            Finding::info("duplicates", sum(|it| it.duplicates)).key("duplicates"),
            Finding::guarantee(
                "most duplicates of one crash",
                worst,
                &format!("<= {bound}"),
                worst <= bound,
            )
            .key("duplicates_of_one_fault"),
            Finding::info("slowest case, in ms", self.slowest.as_millis()).key("slowest_ms"),
        ]
    }
}

fn wrong((case, played): &(Case, CaseResult<Outcome>)) -> Option<Finding> {
    let (CaseError::Invalid(why) | CaseError::Broken(why)) = played.as_ref().err()?;
    let Case { point, situation, crash, .. } = case;
    let what = format!("{}, {}, {}: {why}", point.name, situation.name(), crash.name());
    Some(Finding::guarantee(what, "", "", false))
}

const fn is_invalid(wrong: &CaseError) -> bool {
    matches!(wrong, CaseError::Invalid(_))
}

/// Words in columns.
fn cells(words: [&str; 4]) -> String {
    words.map(|word| format!("{word:>7}")).join(" ")
}
