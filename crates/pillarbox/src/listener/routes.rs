//! The routing table: the best match for an event.

use std::{collections::HashMap, sync::Arc};

use super::erased::{ErasedListener, Nobody};
use super::pattern::Pattern;
use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{AggregateType, EventType};

/// A listener, and the name it was registered under.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) name: Arc<str>,
    pub(crate) listener: Arc<dyn ErasedListener>,
}

/// Exact pairs, patterns with the best first, and who takes the rest.
pub(super) struct Table {
    // By one name and then the other: a look-up borrows both and copies neither.
    pairs: HashMap<AggregateType, HashMap<EventType, Route>>,
    patterns: Vec<(Pattern, Route)>,
    fallback: Option<Route>,
    nobody: Route,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            pairs: HashMap::new(),
            patterns: Vec::new(),
            fallback: None,
            nobody: Route { name: "unroutable".into(), listener: Arc::new(Nobody) },
        }
    }
}

impl Table {
    pub(super) fn is_for_many(&self) -> bool {
        let pairs = self.pairs.values().map(HashMap::len).sum::<usize>();
        pairs > 1 || !self.patterns.is_empty() || self.fallback.is_some()
    }

    pub(super) fn add_pair(
        &mut self,
        (aggregate, event): (AggregateType, EventType),
        listener: Arc<dyn ErasedListener>,
    ) -> Result<()> {
        let name = pair_name(&aggregate, &event);
        let events = self.pairs.entry(aggregate).or_default();
        if events.contains_key(&event) {
            return Err(taken(&name));
        }
        events.insert(event, Route { name, listener });
        Ok(())
    }

    pub(super) fn add_pattern(
        &mut self,
        pattern: Pattern,
        listener: Arc<dyn ErasedListener>,
    ) -> Result<()> {
        if let Some((aggregate, event)) = pattern.pair() {
            return self.add_pair((aggregate.try_into()?, event.try_into()?), listener);
        }
        if pattern.as_str() == "*" {
            let message = "the pattern `*` is what `fallback` is for";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        if self.patterns.iter().any(|(other, _)| *other == pattern) {
            return Err(taken(pattern.as_str()));
        }
        let worse = |(other, _): &(Pattern, Route)| other.rank() < pattern.rank();
        let place = self.patterns.iter().position(worse).unwrap_or(self.patterns.len());
        let route = Route { name: pattern.name(), listener };
        self.patterns.insert(place, (pattern, route));
        Ok(())
    }

    pub(super) fn add_fallback(&mut self, listener: Arc<dyn ErasedListener>) -> Result<()> {
        if self.fallback.is_some() {
            let message = "there is a fallback listener already";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        self.fallback = Some(Route { name: "fallback".into(), listener });
        Ok(())
    }

    /// The pair, else the best pattern, else the fallback, else nobody.
    pub(super) fn best(&self, envelope: &Envelope) -> &Route {
        let pair = self.pairs.get(envelope.aggregate_type());
        let pair = pair.and_then(|events| events.get(envelope.event_type()));
        let pattern = || self.patterns.iter().find(|(pattern, _)| pattern.matches(envelope));
        pair.or_else(|| pattern().map(|(_, route)| route))
            .or(self.fallback.as_ref())
            .unwrap_or(&self.nobody)
    }

    pub(super) fn len(&self) -> usize {
        self.routes().count()
    }

    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.routes().map(|route| &*route.name).collect();
        names.sort_unstable();
        names
    }

    fn routes(&self) -> impl Iterator<Item = &Route> {
        let pairs = self.pairs.values().flat_map(HashMap::values);
        pairs.chain(self.patterns.iter().map(|(_, route)| route)).chain(&self.fallback)
    }
}

/// A slash in the aggregate type must not look like the one that is added here.
fn pair_name(aggregate: &AggregateType, event: &EventType) -> Arc<str> {
    let aggregate = aggregate.as_str();
    if aggregate.contains(['/', '"']) {
        format!("{aggregate:?}/{event}").into()
    } else {
        format!("{aggregate}/{event}").into()
    }
}

fn taken(route: &str) -> Error {
    let message = format!("there is a listener for {route} already");
    Error::new(ErrorKind::Configuration, message)
}
