//! A world played to the end, and the summary of it.

use serde::Serialize;
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::model::{
    config::ModelConfig,
    properties::{HandoffModel, NO_DUPLICATE, NO_FALSE_FAILURE},
};

/// How a world is played.
#[derive(Clone, Copy, Debug)]
pub struct RunBounds {
    /// Threads that play.
    pub threads: usize,
    /// How long at the most; what is not done by then is said to be not done.
    pub timeout: Option<Duration>,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct ModelSummary {
    /// The world.
    pub size: ModelConfig,
    /// Different worlds that were seen.
    pub states: usize,
    /// Moves that were played.
    pub moves: usize,
    /// The longest way to a new world.
    pub depth: usize,
    /// How long it took.
    pub seconds: f64,
    /// Whether every world was seen.
    pub complete: bool,
    /// How often each route was walked.
    pub routes: BTreeMap<&'static str, u64>,
    /// Laws that were broken, with the moves that broke them.
    pub violations: Vec<PropertyViolation>,
    /// States and routes that must be reached and were not.
    pub missed: Vec<&'static str>,
}

/// A broken law.
#[derive(Debug, Serialize)]
pub struct PropertyViolation {
    /// The law.
    pub law: &'static str,
    /// The moves, one after the other.
    pub moves: Vec<String>,
}

impl ModelSummary {
    /// Whether all of it was seen and all of it holds.
    pub fn holds(&self) -> bool {
        self.complete && self.violations.is_empty() && self.missed.is_empty()
    }
}

/// Plays a world to its end, or until a law is broken. `None` never happens.
pub fn check_model(size: ModelConfig, bounds: RunBounds) -> Option<ModelSummary> {
    let started = Instant::now();
    // A mistake is looked for until it makes a second mail or a false end; any other broken law is found on the way.
    let enough = match size.flaw {
        Some(_) => HasDiscoveries::AnyOf([NO_DUPLICATE, NO_FALSE_FAILURE].into()),
        None => HasDiscoveries::AnyFailures,
    };
    let mut builder = HandoffModel::new(size)?.checker().threads(bounds.threads).finish_when(enough);
    if let Some(timeout) = bounds.timeout {
        builder = builder.timeout(timeout);
    }
    let checker = builder.spawn_bfs().join();
    let mut found = checker.discoveries();
    let (mut violations, mut missed) = (Vec::new(), checker.model().0.coverage.unreached(size));
    for property in checker.model().properties() {
        let path = found.remove(property.name);
        match (property.expectation, path) {
            (Expectation::Sometimes, None) => missed.push(property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => violations.push(PropertyViolation {
                law: property.name,
                moves: path.into_actions().iter().map(|what| format!("{what:?}")).collect(),
            }),
        }
    }
    Some(ModelSummary {
        size,
        states: checker.unique_state_count(),
        moves: checker.state_count(),
        depth: checker.max_depth(),
        seconds: started.elapsed().as_secs_f64(),
        complete: checker.is_done()
            && violations.is_empty()
            && bounds.timeout.is_none_or(|most| started.elapsed() < most),
        routes: checker.model().0.coverage.counts(),
        violations,
        missed,
    })
}
