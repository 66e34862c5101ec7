//! Two nodes on one PostgreSQL: one is killed or falls asleep at every point of a hand-over, the other takes over,
//! and the first wakes up again.

use mailonce_sim::{
    rig::{
        post::{self, mail},
        postgres::Postgres,
        server::Server,
    },
    sink::http::Act,
};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::rig::{Hop, Outside, REACH, UNSTUCK, binary, folder, one_by_one};

const MAILS: usize = 6;
/// How long a node is silent before another takes over, and some for the start of that.
const TAKE_OVER: Duration = Duration::from_secs(15 + 5);
/// Longer than a connection may be old when the request is written.
const LONG_SLEEP: Duration = Duration::from_secs(63);
/// Long enough for a point to notice that its process was stopped.
const NAP: Duration = Duration::from_secs(1);
/// Cells side by side: each has two servers, which mostly sleep.
const AT_ONCE: usize = 8;

/// One point, one next hop, one way to go.
#[derive(Clone, Copy, Debug)]
struct Cell {
    point: &'static str,
    hop: Hop,
    kill: bool,
    /// How long the first node sleeps at least.
    sleep: Duration,
}

fn cells() -> Vec<Cell> {
    let points = ["after-lease", "approach", "before-marker", "after-marker", "after-answer", "after-settle", "repeat"];
    let mut cells = Vec::new();
    for hop in [Hop::Keyed, Hop::Relay] {
        for point in points.into_iter().filter(|point| hop == Hop::Keyed || *point != "repeat") {
            cells.push(Cell { point, hop, kill: false, sleep: NAP });
            let always = matches!(point, "after-marker" | "after-answer");
            if always || std::env::var_os("MAILONCE_LONG").is_some() {
                cells.push(Cell { point, hop, kill: true, sleep: NAP });
            }
        }
    }
    cells
}

#[test]
fn another_node_takes_over_and_nothing_is_twice() {
    let (binary, cells) = (binary(), cells());
    let lanes: Vec<Vec<Cell>> =
        (0..AT_ONCE).map(|lane| cells.iter().skip(lane).step_by(AT_ONCE).copied().collect()).collect();
    thread::scope(|scope| {
        let running: Vec<_> =
            lanes.iter().map(|lane| scope.spawn(|| lane.iter().for_each(|cell| cell.play(&binary)))).collect();
        let wrong = running.into_iter().filter_map(|lane| lane.join().err()).count();
        assert_eq!(wrong, 0, "some cells are wrong, see above");
    });
}

#[test]
fn a_node_that_slept_past_the_providers_window_sends_nothing() {
    Cell { point: "after-marker", hop: Hop::Keyed, kill: false, sleep: LONG_SLEEP }.play(&binary());
}

impl Cell {
    fn play(self, binary: &Path) {
        let began = Instant::now();
        let postgres = Postgres::from_env().unwrap_or_else(|why| panic!("{why:#}"));
        let word = if self.kill { "kill" } else { "stop" };
        let name = format!(
            "mailonce_nodes_{}_{}_{:?}_{word}_{}",
            std::process::id(),
            self.point.replace('-', "_"),
            self.hop,
            self.sleep.as_secs()
        );
        let database = postgres.create(&name.to_lowercase()).unwrap();
        let (outside, root) = (Outside::new(self.hop), folder());
        if self.hop == Hop::Keyed {
            outside.keyed().script(&[Act::Honest, Act::TakeThenDrop, Act::Drop]);
        }
        let place = one_by_one(&outside, binary, root.path(), Some(&database.url));
        let mails: Vec<_> = (0..MAILS).map(mail).collect();
        let first = place.start("first", Some(&format!("{}:{word}:2", self.point)), false).unwrap();
        let _maybe = post::send_batch(first.at, "batch", &mails);
        let first = self.gone(first);
        let slept = Instant::now();
        let second = place.start("second", None, false).unwrap();
        let ids = post::send_batch(second.at, "batch", &mails).unwrap();
        let ends = |_, state: &str| state == "sent" || (state == "unknown" && self.hop == Hop::Relay);
        let patience = TAKE_OVER + UNSTUCK;
        post::until_all(second.at, &ids, patience, ends).unwrap_or_else(|why| panic!("{self:?}: {why:#}"));
        if let Some(first) = &first {
            if let Some(rest) = self.sleep.checked_sub(slept.elapsed()) {
                mailonce_sim::rig::children::pause(rest);
            }
            if self.sleep == LONG_SLEEP {
                outside.keyed().forget_keys();
            }
            self.wake(first, &outside);
        }
        self.judge(&second, &ids, &outside);
        println!("{self:?}: {} s", began.elapsed().as_secs());
    }

    /// Waits until the first node is dead or asleep. It is kept when it can wake up.
    fn gone(self, mut first: Server) -> Option<Server> {
        if self.kill {
            let ended = first.ended(REACH).unwrap();
            assert!(ended.is_some(), "{self:?} was never reached; was the binary built with `--features failpoints`?");
            return None;
        }
        post::until("the point", REACH, || first.is_frozen()).unwrap_or_else(|why| panic!("{self:?}: {why:#}"));
        Some(first)
    }

    /// Wakes the first node up, and waits until it has done whatever it wanted to.
    fn wake(self, first: &Server, outside: &Outside) {
        first.thaw().unwrap();
        let probe = post::send_batch(first.at, "probe", &[mail(MAILS)]).unwrap();
        post::until_all(first.at, &probe, UNSTUCK, |_, state| state == "sent")
            .unwrap_or_else(|why| panic!("{self:?}: {why:#}"));
        post::until("the end of its work", UNSTUCK, || post::in_flight(first.at) == Some(0)).unwrap();
        assert_eq!(outside.counts(MAILS + 1)[MAILS], 1);
    }

    fn judge(self, second: &Server, ids: &[String], outside: &Outside) {
        let (states, counts) = (post::states(second.at, ids).unwrap(), outside.counts(MAILS + 1));
        for n in 0..MAILS {
            let right = if states[n] == "unknown" { counts[n] <= 1 } else { counts[n] == 1 };
            assert!(right, "{self:?}: mail {n} is {} and was taken {} times", states[n], counts[n]);
        }
        let unknown = states.iter().filter(|state| *state == "unknown").count();
        // A worker that wakes up brings its answer; one that died with it cannot.
        let lost = self.kill && self.hop == Hop::Relay && matches!(self.point, "after-marker" | "after-answer");
        assert_eq!(unknown, usize::from(lost), "{self:?}: {states:?}");
    }
}
