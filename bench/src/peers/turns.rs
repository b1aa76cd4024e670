//! Rounds in which others may fail: that is told of them, and the rest goes on.

use std::time::Duration;

use crate::{
    Result,
    figure::{Figure, Goal},
    measure::{Sample, quantile},
};

/// What was measured of a way in each round, or why nothing was.
pub(super) type Rounds<T> = std::result::Result<Vec<T>, String>;
pub(super) type Samples = Rounds<Sample>;

/// What one round comes to, for whoever waits.
pub(super) trait Told {
    fn told(&self) -> String;
}

impl Told for Sample {
    fn told(&self) -> String {
        format!("{:.0}/s", self.per_second())
    }
}

/// The times of all events.
impl Told for Vec<Duration> {
    fn told(&self) -> String {
        format!("{} µs", quantile(self, 0.5).as_micros())
    }
}

/// A way to do the work.
pub(super) trait Way: Copy {
    fn label(&self) -> String;
    /// Whether it is someone else's, whose failure is a finding.
    fn is_peer(&self) -> bool;
}

/// Does the work in each way once a round, forwards and backwards by turns. The work learns the
/// number of the round; 0 warms up, does not count, and tells which peers do not run.
pub(super) async fn alternate<W: Way, T: Told>(
    rounds: usize,
    ways: &[W],
    mut work: impl AsyncFnMut(usize, W) -> Result<T>,
) -> Result<Vec<Rounds<T>>> {
    let mut samples: Vec<Rounds<T>> = ways.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for place in order {
            let Ok(taken) = &mut samples[place] else { continue };
            let (way, label) = (ways[place], ways[place].label());
            match work(round, way).await {
                Ok(sample) => {
                    eprintln!("round {round} of {rounds}: {label}: {}", sample.told());
                    taken.extend((round > 0).then_some(sample));
                }
                Err(error) if way.is_peer() => {
                    eprintln!("round {round} of {rounds}: {label}: {error}");
                    samples[place] = Err(error.to_string());
                }
                Err(error) => return Err(format!("{label}: {error}").into()),
            }
        }
    }
    Ok(samples)
}

/// Adds another way to a figure: what was measured of it, or why nothing was.
pub(super) fn beside(
    figure: Figure,
    label: &str,
    ours: &[Sample],
    theirs: &Samples,
    goal: Option<Goal>,
) -> Figure {
    match theirs {
        Ok(samples) => figure.peer(label, ours, samples, goal),
        Err(reason) => figure.absent(label, reason, goal),
    }
}

/// Samples that cannot be missing.
pub(super) fn taken(samples: &Samples) -> Result<&[Sample]> {
    samples.as_deref().map_err(|reason| reason.clone().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Runner {
        is_peer: bool,
        stumbles_in: usize,
    }

    impl Way for Runner {
        fn label(&self) -> String {
            "runner".to_owned()
        }

        fn is_peer(&self) -> bool {
            self.is_peer
        }
    }

    async fn run(ways: &[Runner]) -> Result<Vec<Samples>> {
        alternate(3, ways, async |round, way| match way.stumbles_in {
            stumble if stumble == round => Err("a stone".into()),
            _ => Ok(Sample::of_time(Duration::from_secs(1))),
        })
        .await
    }

    #[tokio::test]
    async fn a_peer_that_fails_is_told_of_and_the_rest_goes_on() {
        let (fit, peer) = (9, Runner { is_peer: true, stumbles_in: 2 });
        let ours = Runner { is_peer: false, stumbles_in: fit };

        let samples = run(&[ours, peer]).await.unwrap();

        assert_eq!(samples[0].as_ref().unwrap().len(), 3);
        assert_eq!(samples[1].as_ref().unwrap_err(), "a stone");
    }

    #[tokio::test]
    async fn a_failure_of_ours_ends_it() {
        let ours = Runner { is_peer: false, stumbles_in: 1 };

        assert!(run(&[ours]).await.is_err());
    }
}
