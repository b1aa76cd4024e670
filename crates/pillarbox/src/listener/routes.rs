//! The routing table: finds the listener of an event.

use std::{collections::HashMap, sync::Arc};

use super::erased::{ErasedListener, NoListener};
use super::pattern::Pattern;
use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{AggregateType, EventType};

/// A listener and the name it was registered under.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) name: Arc<str>,
    pub(crate) listener: Arc<dyn ErasedListener>,
}

/// Listeners by pair of names and by pattern.
pub(super) struct RoutingTable {
    // Two levels, so that a lookup borrows both names.
    pairs: HashMap<AggregateType, HashMap<EventType, Route>>,
    /// The most specific pattern first.
    patterns: Vec<(Pattern, Route)>,
    fallback: Option<Route>,
    unroutable: Route,
}

impl Default for RoutingTable {
    fn default() -> Self {
        Self {
            pairs: HashMap::new(),
            patterns: Vec::new(),
            fallback: None,
            unroutable: Route { name: "unroutable".into(), listener: Arc::new(NoListener) },
        }
    }
}

impl RoutingTable {
    pub(super) fn has_many_routes(&self) -> bool {
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
            return Err(already_registered(&name));
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
            let message = "the pattern `*` cannot be registered: use `fallback`";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        if self.patterns.iter().any(|(other, _)| *other == pattern) {
            return Err(already_registered(pattern.as_str()));
        }
        let less_specific =
            |(other, _): &(Pattern, Route)| other.specificity() < pattern.specificity();
        let index = self.patterns.iter().position(less_specific).unwrap_or(self.patterns.len());
        let route = Route { name: pattern.name(), listener };
        self.patterns.insert(index, (pattern, route));
        Ok(())
    }

    pub(super) fn add_fallback(&mut self, listener: Arc<dyn ErasedListener>) -> Result<()> {
        if self.fallback.is_some() {
            let message = "a fallback listener is already registered";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        self.fallback = Some(Route { name: "fallback".into(), listener });
        Ok(())
    }

    /// Returns the route of the pair, the most specific pattern, the fallback or `unroutable`.
    pub(super) fn best(&self, envelope: &Envelope) -> &Route {
        let pair = self.pairs.get(envelope.aggregate_type());
        let pair = pair.and_then(|events| events.get(envelope.event_type()));
        let pattern = || self.patterns.iter().find(|(pattern, _)| pattern.matches(envelope));
        pair.or_else(|| pattern().map(|(_, route)| route))
            .or(self.fallback.as_ref())
            .unwrap_or(&self.unroutable)
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

/// Quotes an aggregate type with a slash, so that two pairs never have the same name.
fn pair_name(aggregate: &AggregateType, event: &EventType) -> Arc<str> {
    let aggregate = aggregate.as_str();
    if aggregate.contains(['/', '"']) {
        format!("{aggregate:?}/{event}").into()
    } else {
        format!("{aggregate}/{event}").into()
    }
}

fn already_registered(route: &str) -> Error {
    let message = format!("a listener for {route} is already registered");
    Error::new(ErrorKind::Configuration, message)
}
