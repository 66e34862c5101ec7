//! The properties that every state must have, and the states that must be reachable.
//!
//! The numbers are those of the invariants in [`crate::proof`].

use mailonce_core::handoff::HandoffState;
use stateright::{Model, Property};

use crate::model::{
    action_runner::ActionRunner,
    actions::{self, ModelAction},
    config::ModelConfig,
    packed_handoff::PackedHandoff,
    state::{BrokenRule, HopTruth, ModelState, is_sent_state},
};

/// P3 and P4: under `hold`, and inside a window, only an operator resends.
pub const NO_DUPLICATE: &str = "P3, P4: no mail is taken twice that nobody asked to be sent again";
/// P7.
pub const NO_FALSE_FAILURE: &str = "P7: what is called failed or cancelled was never taken";

/// The model of a handoff.
#[derive(Debug)]
pub struct HandoffModel(pub ActionRunner);

impl HandoffModel {
    /// The model of a configuration. It is never `None`.
    pub fn new(size: ModelConfig) -> Option<Self> {
        ActionRunner::new(size).map(Self)
    }
}

impl Model for HandoffModel {
    type State = ModelState;
    type Action = ModelAction;

    /// Due now, due later, or held.
    fn init_states(&self) -> Vec<ModelState> {
        let size = self.0.config;
        [HandoffState::Queued, HandoffState::Scheduled, HandoffState::Held]
            .into_iter()
            .map(|state| {
                let row = PackedHandoff::new(state);
                ModelState::new(size, vec![row; usize::from(size.handoffs)])
            })
            .collect()
    }

    fn actions(&self, world: &ModelState, all: &mut Vec<ModelAction>) {
        actions::possible_actions(self.0.config, world, all);
    }

    fn next_state(&self, world: &ModelState, what: ModelAction) -> Option<ModelState> {
        let next = self.0.apply(world, what);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut laws = safety_properties();
        laws.extend(reachability_properties(self.0.config));
        laws
    }
}

fn holds_for_all(world: &ModelState, law: fn(&PackedHandoff, &HopTruth) -> bool) -> bool {
    world.rows.iter().zip(&world.truth).all(|(row, truth)| law(row, truth))
}

fn any_in_state(world: &ModelState, state: HandoffState) -> bool {
    world.rows.iter().any(|row| row.state == state)
}

/// The properties of every state.
fn safety_properties() -> Vec<Property<HandoffModel>> {
    vec![
        Property::always(NO_DUPLICATE, |_, world| {
            holds_for_all(world, |_, truth| truth.accepted_mails <= 1 + truth.resends)
        }),
        Property::always("P4: a second mail is flagged as possible", |_, world| {
            holds_for_all(world, |row, truth| truth.accepted_mails <= 1 || row.may_duplicate)
        }),
        Property::always("P5: what has not ended can go on", |_, world| {
            holds_for_all(world, |row, _| match row.state {
                HandoffState::Leased | HandoffState::Sending => row.is_leased,
                HandoffState::Unknown => row.unknown_attempts != 0 && !row.is_leased,
                _ => !row.is_leased,
            })
        }),
        Property::always("P6: what is called sent was taken", |_, world| {
            holds_for_all(world, |row, truth| {
                !is_sent_state(row.state) || truth.accepted_mails > 0 || truth.person_confirmed
            })
        }),
        Property::always(NO_FALSE_FAILURE, |_, world| {
            holds_for_all(world, |row, truth| !row.state.is_surely_unsent() || truth.accepted_mails == 0)
        }),
        Property::always("P10: only legal steps are taken", |_, world: &ModelState| {
            world.broken != Some(BrokenRule::Step)
        }),
        Property::always("P10: fences grow with each lease and only then", |_, world: &ModelState| {
            world.broken != Some(BrokenRule::Fence)
        }),
        Property::always("nothing in doubt waits to be sent unless somebody said so", |_, world| {
            holds_for_all(world, |row, _| {
                let waits = matches!(row.state, HandoffState::Queued | HandoffState::Scheduled | HandoffState::Held);
                !waits || row.unknown_attempts == 0 || (row.may_retry_unknown && row.may_duplicate)
            })
        }),
    ]
}

/// The states that must be reachable.
fn reachability_properties(size: ModelConfig) -> Vec<Property<HandoffModel>> {
    let mut states = vec![
        Property::sometimes("scheduled is reached", |_, world| any_in_state(world, HandoffState::Scheduled)),
        Property::sometimes("queued is reached", |_, world| any_in_state(world, HandoffState::Queued)),
        Property::sometimes("leased is reached", |_, world| any_in_state(world, HandoffState::Leased)),
        Property::sometimes("sending is reached", |_, world| any_in_state(world, HandoffState::Sending)),
        Property::sometimes("sent is reached", |_, world| any_in_state(world, HandoffState::Sent)),
        Property::sometimes("failed is reached", |_, world| any_in_state(world, HandoffState::Failed)),
        Property::sometimes("unknown is reached", |_, world| any_in_state(world, HandoffState::Unknown)),
        Property::sometimes("abandoned is reached", |_, world| any_in_state(world, HandoffState::Abandoned)),
        Property::sometimes("held is reached", |_, world| any_in_state(world, HandoffState::Held)),
        Property::sometimes("cancelled is reached", |_, world| any_in_state(world, HandoffState::Cancelled)),
    ];
    if size.news {
        states
            .push(Property::sometimes("delivered is reached", |_, world| any_in_state(world, HandoffState::Delivered)));
        states.push(Property::sometimes("bounced is reached", |_, world| any_in_state(world, HandoffState::Bounced)));
        states.push(Property::sometimes("complained is reached", |_, world| {
            any_in_state(world, HandoffState::Complained)
        }));
    }
    states
}
