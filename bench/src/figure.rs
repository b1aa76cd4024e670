//! One measured figure, as the JSON has it.

use serde::Serialize;

use crate::measure::{Sample, Spread};

/// One case on one store: ours beside the limit of the same run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) case: String,
    pub(crate) store: &'static str,
    /// Which server, in its own words.
    pub(crate) server: String,
    pub(crate) unit: Unit,
    pub(crate) ours: f64,
    pub(crate) limit: f64,
    /// The median of ours over the limit, round by round.
    pub(crate) ratio: f64,
    pub(crate) ours_spread: [f64; 2],
    pub(crate) limit_spread: [f64; 2],
    pub(crate) ratio_spread: [f64; 2],
    pub(crate) rounds: usize,
    /// What one round of ours came to: events, transactions or calls.
    pub(crate) each_round: f64,
    /// What the limit is.
    pub(crate) against: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<Goal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_cpu_us: Option<Pair>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_cpu_us: Option<Pair>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_bytes: Option<Pair>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peak_mib: Option<Pair>,
    /// Other ways to do the same, with ours over theirs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) peers: Vec<Peer>,
    /// Anything else that was counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// Where it stands on the way of something that grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) point: Option<Point>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "events/s")]
    Events,
    #[serde(rename = "tx/s")]
    Transactions,
    #[serde(rename = "µs")]
    Micros,
    /// Rows read for each event.
    #[serde(rename = "rows")]
    Rows,
    /// CPU time of this process in a second.
    #[serde(rename = "% of a core")]
    OwnShare,
    /// CPU time of the server's processes in a second.
    #[serde(rename = "% of a core")]
    ServerShare,
}

impl Unit {
    fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::Events | Self::Transactions => sample.per_second(),
            Self::Micros => sample.micros_each(),
            Self::Rows => sample.rows_each().unwrap_or(f64::NAN),
            Self::OwnShare => sample.share(sample.own_cpu).unwrap_or(f64::NAN),
            Self::ServerShare => sample.share(sample.server_cpu).unwrap_or(f64::NAN),
        }
    }
}

/// What the ratio should be, or ours alone, or by how much ours may exceed the other.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    OursAtMost(f64),
    MoreByAtMost(f64),
}

/// A number per event, transaction or call, ours and the limit's: medians.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pair {
    pub(crate) ours: f64,
    pub(crate) limit: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Peer {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) found: Found,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<Goal>,
}

/// What became of another way.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Found {
    Value {
        value: f64,
        ratio: f64,
        ratio_spread: [f64; 2],
        #[serde(flatten)]
        costs: Costs,
    },
    /// It could not be measured, and why.
    Absent { absent: String },
}

/// What each event, transaction or call of another way cost: medians.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Costs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_cpu_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_cpu_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_bytes: Option<f64>,
}

/// How much there was of what grows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) axis: &'static str,
    pub(crate) at: u32,
    /// What was measured there, where that is not a drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) what: Option<&'static str>,
}

/// The names of a figure, before its numbers are known.
#[derive(Debug)]
pub(crate) struct Title {
    pub(crate) case: String,
    pub(crate) store: &'static str,
    pub(crate) server: String,
    pub(crate) unit: Unit,
    pub(crate) against: String,
    pub(crate) goal: Option<Goal>,
}

impl Figure {
    /// Compares samples that were taken by turns; `None` when there are none.
    pub(crate) fn new(title: Title, ours: &[Sample], limit: &[Sample]) -> Option<Self> {
        let unit = title.unit;
        let spread = |samples: &[Sample]| Spread::of(samples.iter().map(|one| unit.of(one)));
        let (our_spread, limit_spread) = (spread(ours)?, spread(limit)?);
        let ratio = ratios(unit, ours, limit)?;
        Some(Self {
            case: title.case,
            store: title.store,
            server: title.server,
            unit,
            ours: our_spread.median,
            limit: limit_spread.median,
            ratio: ratio.median,
            ours_spread: [our_spread.least, our_spread.most],
            limit_spread: [limit_spread.least, limit_spread.most],
            ratio_spread: [ratio.least, ratio.most],
            rounds: ours.len(),
            each_round: Spread::of(ours.iter().map(|one| one.count as f64))?.median,
            against: title.against,
            goal: title.goal,
            server_cpu_us: Pair::of(ours, limit, Sample::server_micros),
            client_cpu_us: Pair::of(ours, limit, Sample::own_micros),
            log_bytes: Pair::of(ours, limit, Sample::log_bytes_each),
            peak_mib: Pair::of(ours, limit, Sample::peak_mib),
            peers: Vec::new(),
            notes: Vec::new(),
            point: None,
        })
    }

    /// Adds another way that took part in the same rounds.
    pub(crate) fn peer(
        mut self,
        name: &str,
        ours: &[Sample],
        peer: &[Sample],
        goal: Option<Goal>,
    ) -> Self {
        let value = Spread::of(peer.iter().map(|one| self.unit.of(one)));
        if let Some((value, ratio)) = value.zip(ratios(self.unit, ours, peer)) {
            let ratio_spread = [ratio.least, ratio.most];
            let (value, ratio, costs) = (value.median, ratio.median, Costs::of(peer));
            let found = Found::Value { value, ratio, ratio_spread, costs };
            self.peers.push(Peer { name: name.to_owned(), found, goal });
        }
        self
    }

    /// Adds another way that could not be measured.
    pub(crate) fn absent(mut self, name: &str, reason: &str, goal: Option<Goal>) -> Self {
        let found = Found::Absent { absent: reason.to_owned() };
        self.peers.push(Peer { name: name.to_owned(), found, goal });
        self
    }

    /// One line for whoever waits.
    pub(crate) fn line(&self) -> String {
        let Self { case, store, ours, limit, ratio, ratio_spread: [least, most], .. } = self;
        let pair = |name: &str, pair: Option<Pair>| {
            pair.map(|Pair { ours, limit }| format!(", {name} {ours:.2} / {limit:.2}"))
        };
        let more = [
            pair("server µs", self.server_cpu_us),
            pair("client µs", self.client_cpu_us),
            pair("log B", self.log_bytes),
            pair("peak MiB", self.peak_mib),
        ];
        let more: String = more.into_iter().flatten().collect();
        let digits = if *limit < 100.0 { 2 } else { 0 };
        format!(
            "{store}: {case}: {ours:.digits$} / {limit:.digits$}, ratio {ratio:.2} [{least:.2}-{most:.2}]{more}"
        )
    }
}

impl Costs {
    fn of(samples: &[Sample]) -> Self {
        let median = |part: fn(&Sample) -> Option<f64>| {
            Some(Spread::of(samples.iter().filter_map(part))?.median)
        };
        Self {
            server_cpu_us: median(Sample::server_micros),
            client_cpu_us: median(Sample::own_micros),
            log_bytes: median(Sample::log_bytes_each),
        }
    }
}

impl Pair {
    fn of(
        ours: &[Sample],
        limit: &[Sample],
        part: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Self> {
        let ours = Spread::of(ours.iter().filter_map(&part))?.median;
        let limit = Spread::of(limit.iter().filter_map(&part))?.median;
        Some(Self { ours, limit })
    }
}

/// Round by round, since what slows the machine down slows neighbours down alike.
fn ratios(unit: Unit, ours: &[Sample], other: &[Sample]) -> Option<Spread> {
    Spread::of(ours.iter().zip(other).map(|(ours, other)| unit.of(ours) / unit.of(other)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(count: u64) -> Sample {
        let wall = Duration::from_secs(1);
        let log_bytes = Some(count * 10);
        Sample { count, wall, server_cpu: None, own_cpu: None, log_bytes, peak: None, rows: None }
    }

    fn title() -> Title {
        Title {
            case: "drain".to_owned(),
            store: "memory",
            server: String::new(),
            unit: Unit::Events,
            against: String::new(),
            goal: None,
        }
    }

    #[test]
    fn the_ratio_is_taken_round_by_round() {
        let (ours, limit) = ([sample(50), sample(8)], [sample(100), sample(10)]);

        let figure = Figure::new(title(), &ours, &limit).unwrap();

        assert_eq!(figure.ratio_spread, [0.5, 0.8]);
        assert!((figure.ratio - 0.65).abs() < 1e-9);
        assert!(figure.server_cpu_us.is_none());
        assert!(figure.log_bytes.is_some());
    }

    #[test]
    fn a_way_that_could_not_be_measured_is_not_left_out() {
        let figure = Figure::new(title(), &[sample(50)], &[sample(100)]).unwrap();
        let figure = figure.peer("one", &[sample(50)], &[sample(10)], None);

        let figure = figure.absent("other", "no node", Some(Goal::AtLeast(6.0)));

        let json = serde_json::to_value(&figure).unwrap();
        assert_eq!(json["peers"][0]["ratio"], 5.0);
        assert_eq!(json["peers"][0]["log_bytes"], 10.0);
        assert_eq!(json["peers"][1]["absent"], "no node");
    }
}
