//! Upcasters convert old payloads to the version that the listener supports, step by step.

use std::{cmp::Ordering, collections::HashMap, error::Error as StdError};

use serde_json::Value;

use super::erased::Rules;
use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{AggregateType, Event, EventType};
use crate::verdict::Failure;

type Cause = Box<dyn StdError + Send + Sync>;
type Upcaster = Box<dyn Fn(Value) -> Result<Value, Cause> + Send + Sync>;
type Pair = (AggregateType, EventType);

/// Upcasters by event and by the version that each converts from.
#[derive(Default)]
pub(crate) struct Upcasters(HashMap<Pair, HashMap<u32, Upcaster>>);

impl Upcasters {
    pub(super) fn add<E: Event>(&mut self, from: u32, upcaster: Upcaster) -> Result<()> {
        let (aggregate, event, latest) = (E::AGGREGATE, E::TYPE, E::VERSION);
        if from == 0 || from >= latest {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!(
                    "an upcaster of {aggregate}/{event} from version {from} would never run: \
                     versions start at 1, and the event has version {latest}"
                ),
            ));
        }
        let steps = self.0.entry((aggregate, event)).or_default();
        if steps.contains_key(&from) {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!(
                    "an upcaster of {}/{} from version {from} is already registered",
                    E::AGGREGATE,
                    E::TYPE
                ),
            ));
        }
        steps.insert(from, upcaster);
        Ok(())
    }

    /// Converts a payload from version `stored` to `E::VERSION`.
    fn upcast<E: Event>(&self, mut value: Value, stored: u32) -> Result<Value, Failure> {
        let steps = self.0.get(&(E::AGGREGATE, E::TYPE));
        for from in stored..E::VERSION {
            let (to, latest) = (from + 1, E::VERSION);
            let Some(upcaster) = steps.and_then(|steps| steps.get(&from)) else {
                return Err(Failure::dead(format!(
                    "event version is {stored}, the listener supports {latest}, and no upcaster \
                     from {from} to {to} is registered"
                )));
            };
            value = upcaster(value).map_err(|cause| {
                Failure::dead(format!("the upcaster from version {from} to {to} failed: {cause}"))
            })?;
        }
        Ok(value)
    }
}

impl Rules {
    /// Decodes an event. One that cannot be decoded is dead: a retry would fail as well.
    pub(super) fn decode<E: Event>(&self, envelope: &Envelope) -> Result<E, Failure> {
        let (stored, latest) = (envelope.event_version(), E::VERSION);
        let bytes = envelope.payload().as_bytes();
        match stored.cmp(&latest) {
            Ordering::Equal => {
                serde_json::from_slice(bytes).map_err(|error| invalid_payload(&error))
            }
            Ordering::Greater => Err(self.unroutable.failure(format!(
                "event version is {stored}, newer than {latest}, the latest that the listener \
                 supports"
            ))),
            Ordering::Less => {
                let value =
                    serde_json::from_slice(bytes).map_err(|error| invalid_payload(&error))?;
                let value = self.upcasters.upcast::<E>(value, stored)?;
                serde_json::from_value(value)
                    .map_err(|error| invalid_upcast(&error, stored, latest))
            }
        }
    }
}

// The errors' own texts may quote the payload, which must not appear in logs or `last_error`.

fn invalid_payload(error: &serde_json::Error) -> Failure {
    let (kind, line, column) = (error.classify(), error.line(), error.column());
    Failure::dead(format!("the payload cannot be decoded ({kind:?}, line {line}, column {column})"))
}

fn invalid_upcast(error: &serde_json::Error, stored: u32, latest: u32) -> Failure {
    let kind = error.classify();
    Failure::dead(format!(
        "the payload cannot be decoded after upcasting from version {stored} to {latest} ({kind:?})"
    ))
}
