//! What this process knows about notifications, so that a round reads only what may be due.
//!
//! Nothing here decides whether a notification is sent: attempts are recorded in the store, which other nodes see too.

use mailonce_core::{
    conversation::approval_link::Addressee,
    id::{PersonId, TeamId},
    time::Time,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use uuid::Uuid;

/// How many notifications are remembered that need no attempt for now.
const MAX_PAUSED: usize = 20_000;
/// Open questions of a team that are remembered.
const MAX_OPEN: usize = 10_000;
/// How often old links of a team are removed, in milliseconds.
const CLEANUP_INTERVAL_MS: i64 = 3_600_000;
/// How far a scan for new questions goes back behind the previous one, in milliseconds. A question may become visible
/// after a newer one, and the clocks of nodes differ.
const SCAN_OVERLAP_MS: i64 = 5 * 60_000;

/// A question that was open when it was last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OpenQuestion {
    /// The id of the escalation.
    pub(super) id: Uuid,
    /// When it was asked, or asked again.
    pub(super) asked_at: Time,
}

/// The open questions of a team.
#[derive(Default)]
struct TeamQuestions {
    scanned_at: Option<Time>,
    open: HashMap<Uuid, Time>,
}

/// What this process knows about notifications.
#[derive(Default)]
pub(crate) struct NotificationProgress {
    /// Teams whose questions are being read, and recipients who are being told.
    running: Arc<Mutex<HashSet<Uuid>>>,
    /// Until when nothing is to be done about a question for an addressee.
    paused: Mutex<HashMap<(OpenQuestion, Uuid), Time>>,
    /// Until when questions for a person are collected.
    collecting: Mutex<HashMap<PersonId, Time>>,
    /// Open questions, which need not be looked for in every round.
    questions: Mutex<HashMap<TeamId, TeamQuestions>>,
    /// When the old links of a team were last removed.
    cleaned_at: Mutex<HashMap<TeamId, Time>>,
    /// Why a person cannot be told, as it was last logged.
    unreachable_reasons: Mutex<HashMap<PersonId, String>>,
}

/// While this guard exists, no other task works on the team or the recipient.
pub(super) struct RunningGuard {
    id: Uuid,
    running: Arc<Mutex<HashSet<Uuid>>>,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NotificationProgress {
    /// Marks a team or a recipient by its id. `None` while another task has it.
    pub(super) fn start(&self, id: Uuid) -> Option<RunningGuard> {
        let is_free = lock(&self.running).insert(id);
        is_free.then(|| RunningGuard { id, running: Arc::clone(&self.running) })
    }

    /// Whether old links of a team are to be removed now.
    pub(super) fn begin_cleanup(&self, team: TeamId, now: Time) -> bool {
        let mut cleaned_at = lock(&self.cleaned_at);
        if cleaned_at.get(&team).is_some_and(|at| now.since(*at) < CLEANUP_INTERVAL_MS) {
            return false;
        }
        cleaned_at.insert(team, now);
        true
    }

    pub(super) fn is_paused(&self, question: OpenQuestion, addressee: Addressee, now: Time) -> bool {
        lock(&self.paused).get(&(question, addressee.id())).is_some_and(|until| now < *until)
    }

    /// Does nothing about a question for an addressee until then; `None`: for ever.
    pub(super) fn pause(&self, question: OpenQuestion, addressee: Addressee, until: Option<Time>) {
        let mut paused = lock(&self.paused);
        if paused.len() >= MAX_PAUSED {
            paused.clear();
        }
        paused.insert((question, addressee.id()), until.unwrap_or(Time(i64::MAX)));
    }

    /// Whether questions for a person are collected now.
    pub(super) fn is_collecting(&self, person: PersonId, now: Time) -> bool {
        lock(&self.collecting).get(&person).is_some_and(|until| now < *until)
    }

    pub(super) fn collect_until(&self, person: PersonId, until: Time, now: Time) {
        let mut collecting = lock(&self.collecting);
        collecting.retain(|_, until| now < *until);
        collecting.insert(person, until);
    }

    /// Whether the reason why a person cannot be notified differs from the one that was logged last.
    pub(super) fn is_new_unreachable_reason(&self, person: PersonId, why: &str) -> bool {
        let mut unreachable_reasons = lock(&self.unreachable_reasons);
        if unreachable_reasons.len() >= MAX_PAUSED {
            unreachable_reasons.clear();
        }
        unreachable_reasons.insert(person, why.to_owned()).is_none_or(|before| before != why)
    }

    /// From when on a team's questions are to be read: back to `oldest` at first, later only what is new.
    pub(super) fn scan_start(&self, team: TeamId, oldest: Time) -> Time {
        let scanned_at = lock(&self.questions).get(&team).and_then(|questions| questions.scanned_at);
        scanned_at.map_or(oldest, |at| at.plus(-SCAN_OVERLAP_MS).max(oldest))
    }

    /// Remembers the open questions that a scan found. Returns all of the team that are younger than `oldest`, in the
    /// order in which they were asked.
    pub(super) fn end_scan(
        &self,
        team: TeamId,
        found: &[OpenQuestion],
        (oldest, now): (Time, Time),
    ) -> Vec<OpenQuestion> {
        let mut teams = lock(&self.questions);
        let questions = teams.entry(team).or_default();
        questions.open.extend(found.iter().map(|question| (question.id, question.asked_at)));
        questions.open.retain(|_, asked_at| *asked_at > oldest);
        questions.scanned_at = Some(now);
        let mut all: Vec<_> = questions.open.iter().map(|(id, at)| OpenQuestion { id: *id, asked_at: *at }).collect();
        all.sort_unstable_by_key(|question| (question.asked_at, question.id));
        if all.len() > MAX_OPEN {
            // The next scan finds the forgotten ones again.
            *questions = TeamQuestions::default();
            all.truncate(MAX_OPEN);
        }
        all
    }

    /// Remembers an open question that a scan for new ones would not find, because it was asked again.
    pub(super) fn track(&self, team: TeamId, question: OpenQuestion) {
        // A team that was never scanned is scanned completely.
        if let Some(questions) = lock(&self.questions).get_mut(&team) {
            questions.open.insert(question.id, question.asked_at);
        }
    }

    /// Forgets a question that is no longer open.
    pub(super) fn forget(&self, team: TeamId, question: Uuid) {
        if let Some(questions) = lock(&self.questions).get_mut(&team) {
            questions.open.remove(&question);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_questions_are_read_again() {
        let (progress, team) = (NotificationProgress::default(), TeamId(Uuid::nil()));
        let question = |id: u128, at: i64| OpenQuestion { id: Uuid::from_u128(id), asked_at: Time(at) };
        let hour = 3_600_000;
        assert_eq!(progress.scan_start(team, Time(0)), Time(0));
        progress.track(team, question(9, 5));
        let first = progress.end_scan(team, &[question(2, 20), question(1, 10)], (Time(0), Time(hour)));
        assert_eq!(first, [question(1, 10), question(2, 20)]);
        assert_eq!(progress.scan_start(team, Time(0)), Time(hour - SCAN_OVERLAP_MS));
        progress.track(team, question(9, 30));
        progress.forget(team, question(2, 20).id);
        let second = progress.end_scan(team, &[question(1, 10)], (Time(9), Time(2 * hour)));
        assert_eq!(second, [question(1, 10), question(9, 30)]);
        assert_eq!(progress.end_scan(team, &[], (Time(10), Time(3 * hour))), [question(9, 30)], "too old");
    }

    #[test]
    fn a_question_that_is_asked_again_is_not_paused() {
        let (progress, target) = (NotificationProgress::default(), Addressee::Target(Uuid::nil()));
        let question = |at: i64| OpenQuestion { id: Uuid::nil(), asked_at: Time(at) };
        progress.pause(question(1), target, None);
        assert!(progress.is_paused(question(1), target, Time(5)) && !progress.is_paused(question(2), target, Time(5)));
        progress.pause(question(2), target, Some(Time(7)));
        assert!(progress.is_paused(question(2), target, Time(6)) && !progress.is_paused(question(2), target, Time(7)));
    }
}
