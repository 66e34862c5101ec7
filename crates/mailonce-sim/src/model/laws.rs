//! What must hold in every world, and the states that some world must reach.
//!
//! The numbers are those of the history checker's laws: what is P3 to a campaign is P3 here.

use mailonce_core::handoff::State;
use stateright::{Model, Property};

use super::{
    moves::{self, Move},
    play::Player,
    row::Row,
    size::Size,
    world::{Broken, Truth, World, is_gone},
};

/// P3 and P4: under hold and inside a window nobody but a person sends again.
pub const TWICE: &str = "P3, P4: no mail is taken twice that nobody asked to be sent again";
/// P7.
pub const FALSE_END: &str = "P7: what is called failed or cancelled was never taken";

/// The model of a handoff on its way out.
#[derive(Debug)]
pub struct Handover(pub Player);

impl Handover {
    /// The model of a size. `None` never happens.
    pub fn new(size: Size) -> Option<Self> {
        Player::new(size).map(Self)
    }
}

impl Model for Handover {
    type State = World;
    type Action = Move;

    /// Due now, due later, or held back.
    fn init_states(&self) -> Vec<World> {
        let size = self.0.size;
        [State::Queued, State::Scheduled, State::Held]
            .into_iter()
            .map(|state| {
                let row = Row::fresh(state);
                World::new(size, vec![row; usize::from(size.handoffs)])
            })
            .collect()
    }

    fn actions(&self, world: &World, all: &mut Vec<Move>) {
        moves::moves(self.0.size, world, all);
    }

    fn next_state(&self, world: &World, what: Move) -> Option<World> {
        let next = self.0.play(world, what);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut laws = laws();
        laws.extend(reached(self.0.size));
        laws
    }
}

fn all(world: &World, law: fn(&Row, &Truth) -> bool) -> bool {
    world.rows.iter().zip(&world.truth).all(|(row, truth)| law(row, truth))
}

fn any(world: &World, state: State) -> bool {
    world.rows.iter().any(|row| row.state == state)
}

/// What must hold in every world.
fn laws() -> Vec<Property<Handover>> {
    vec![
        Property::always(TWICE, |_, world| all(world, |_, truth| truth.taken <= 1 + truth.resends)),
        Property::always("P4: a second mail is flagged as possible", |_, world| {
            all(world, |row, truth| truth.taken <= 1 || row.may_duplicate)
        }),
        Property::always("P5: what has not ended can go on", |_, world| {
            all(world, |row, _| match row.state {
                State::Leased | State::Sending => row.held,
                State::Unknown => row.doubts != 0 && !row.held,
                _ => !row.held,
            })
        }),
        Property::always("P6: what is called sent was taken", |_, world| {
            all(world, |row, truth| !is_gone(row.state) || truth.taken > 0 || truth.vouched)
        }),
        Property::always(FALSE_END, |_, world| {
            all(world, |row, truth| !row.state.is_surely_unsent() || truth.taken == 0)
        }),
        Property::always("P10: only legal steps are taken", |_, world: &World| world.broken != Some(Broken::Step)),
        Property::always("P10: fences grow with each lease and only then", |_, world: &World| {
            world.broken != Some(Broken::Fence)
        }),
        Property::always("nothing in doubt waits to be sent unless somebody said so", |_, world| {
            all(world, |row, _| {
                let waits = matches!(row.state, State::Queued | State::Scheduled | State::Held);
                !waits || row.doubts == 0 || (row.again && row.may_duplicate)
            })
        }),
    ]
}

/// The states that some world must reach.
fn reached(size: Size) -> Vec<Property<Handover>> {
    let mut states = vec![
        Property::sometimes("scheduled is reached", |_, world| any(world, State::Scheduled)),
        Property::sometimes("queued is reached", |_, world| any(world, State::Queued)),
        Property::sometimes("leased is reached", |_, world| any(world, State::Leased)),
        Property::sometimes("sending is reached", |_, world| any(world, State::Sending)),
        Property::sometimes("sent is reached", |_, world| any(world, State::Sent)),
        Property::sometimes("failed is reached", |_, world| any(world, State::Failed)),
        Property::sometimes("unknown is reached", |_, world| any(world, State::Unknown)),
        Property::sometimes("abandoned is reached", |_, world| any(world, State::Abandoned)),
        Property::sometimes("held is reached", |_, world| any(world, State::Held)),
        Property::sometimes("cancelled is reached", |_, world| any(world, State::Cancelled)),
    ];
    if size.news {
        states.push(Property::sometimes("delivered is reached", |_, world| any(world, State::Delivered)));
        states.push(Property::sometimes("bounced is reached", |_, world| any(world, State::Bounced)));
        states.push(Property::sometimes("complained is reached", |_, world| any(world, State::Complained)));
    }
    states
}
