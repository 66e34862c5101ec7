//! Runs the checker on a system and summarizes the result.

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

/// The limits of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunBounds {
    /// Threads.
    pub threads: usize,
    /// The timeout. A run that exceeds it is reported as incomplete.
    pub timeout: Option<Duration>,
}

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct ModelSummary {
    /// The configuration.
    pub size: ModelConfig,
    /// Distinct states.
    pub states: usize,
    /// Transitions.
    pub moves: usize,
    /// The longest path to a new state.
    pub depth: usize,
    /// Duration.
    pub seconds: f64,
    /// Whether all states were explored.
    pub complete: bool,
    /// How often each route was taken.
    pub routes: BTreeMap<&'static str, u64>,
    /// Violated properties with the actions that led there.
    pub violations: Vec<PropertyViolation>,
    /// States and routes that must be reached and were not.
    pub missed: Vec<&'static str>,
}

/// A violated property.
#[derive(Debug, Serialize)]
pub struct PropertyViolation {
    /// The property.
    pub law: &'static str,
    /// The actions in order.
    pub moves: Vec<String>,
}

impl ModelSummary {
    /// Whether all states were explored and every property holds.
    pub fn holds(&self) -> bool {
        self.complete && self.violations.is_empty() && self.missed.is_empty()
    }
}

/// Explores all states, or stops at the first violation. It is never `None`.
pub fn check_model(size: ModelConfig, bounds: RunBounds) -> Option<ModelSummary> {
    let started = Instant::now();
    // With a deliberate bug, the run continues until a duplicate or a false failure; other violations are found on the
    // way.
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
