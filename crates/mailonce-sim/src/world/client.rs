//! Callers, operators and providers: they ask one node or another, and write down what they were told.

use super::hop::{Hop, Report};
use super::shared::Shared;
use super::wishes::{Name, Wish};
use crate::proof::history::{Call, End, Verb};
use mailonce_core::dispatch::Choice;
use mailonce_core::email::{Email, EmailState};
use mailonce_core::handoff::{Evidence, Handoff, Source};
use mailonce_core::id::{EmailId, TeamId};
use mailonce_core::key::Key;
use mailonce_core::port::store::{EmailQuery, Store as _};
use mailonce_core::problem::{Code, Problem};
use mailonce_engine::doubts::Resolve;
use mailonce_engine::{Caller, Engine};
use mailonce_store::memory::Memory;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// How much time may pass while a call is under way, in milliseconds.
const LEEWAY_MS: i64 = 120_000;

/// An email that a caller was told of.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) id: EmailId,
    pub(super) team: usize,
    pub(super) key: Option<String>,
}

/// Everybody who asks.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) shared: Arc<Shared>,
    /// For looking at what is, before and after a call.
    pub(super) store: Arc<Memory>,
    /// One caller for each team.
    pub(super) callers: Vec<Caller>,
    pub(super) told: Arc<Mutex<Vec<Told>>>,
}

/// What may be asked about an email.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Cancel,
    Resend,
    Resolve(Choice),
    /// With a rev that is no longer the email's.
    ResolveStale(Choice),
    Forget,
    Look,
}

/// The name of a team in the history.
pub(super) fn team_name(team: usize) -> String {
    format!("team{team}")
}

/// A problem in the words of the history. One that says that it cannot tell is no answer.
pub(super) fn failed(problem: &Problem) -> End {
    if problem.code == Code::Unavailable {
        return End::Info;
    }
    End::Fail { status: problem.code.status(), code: problem.code.word().to_owned() }
}

/// Whether some attempt of it may have arrived.
fn in_doubt(email: &Email) -> bool {
    email.handoffs.iter().any(Handoff::is_in_doubt)
}

impl Clients {
    pub(super) fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn learn(&self, told: Told) {
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|known| known.id == told.id) {
            all.push(told);
        }
    }

    /// Asks for a wish.
    pub(super) async fn ask(self, engine: Arc<Engine>, wish: Wish, words: u64, turn: bool) {
        let (key, team) = (wish.key(), team_name(wish.team));
        self.forget_in_time(&wish).await;
        let mut call = Call::new(0, &team, wish.verb());
        (call.key, call.wanted, call.forgives) = (key.clone(), wish.wanted(words), wish.forgives());
        call.may_fail = vec!["key_mismatch".into()];
        let began = self.shared.first_asked(&(team, key.clone()));
        let call = self.shared.invoke(call);
        let answer = self.send(&engine, &wish, words, turn).await;
        let end = answer.map_or_else(
            |problem| failed(&problem),
            |(first, ids)| {
                self.made(&wish, key.as_deref(), &ids, began);
                End::Ok { first, ids: ids.iter().map(ToString::to_string).collect() }
            },
        );
        self.shared.end(call, end, false);
    }

    /// Whether a call made its emails, and which they are.
    async fn send(
        &self,
        engine: &Engine,
        wish: &Wish,
        words: u64,
        turn: bool,
    ) -> Result<(bool, Vec<EmailId>), Problem> {
        let (caller, mut requests) = (&self.callers[wish.team], wish.requests(words, turn));
        if let Name::Batch(key) = &wish.name {
            let items = requests.into_iter().map(Ok).collect();
            let answer = engine.send_batch(caller, Key::parse(key).ok(), items, true).await?;
            return Ok((!answer.replayed, answer.items.iter().flatten().map(|sent| sent.id).collect()));
        }
        let request = requests.pop().ok_or_else(|| Problem::new(Code::InvalidField, "the wish cannot be worded"))?;
        let sent = engine.send(caller, request).await?;
        Ok((sent.first, vec![sent.id]))
    }

    fn made(&self, wish: &Wish, key: Option<&str>, ids: &[EmailId], began: i64) {
        for id in ids {
            self.learn(Told { id: *id, team: wish.team, key: key.map(str::to_owned) });
            if let Some(minutes) = wish.later {
                self.shared.due(*id, began + minutes as i64 * 60_000);
            }
        }
    }

    /// A key whose time is over may be bound again: the judge must know.
    async fn forget_in_time(&self, wish: &Wish) {
        let (Some(key), team) = (wish.key(), self.callers[wish.team].team.id) else { return };
        let query = EmailQuery { limit: usize::MAX, ..EmailQuery::default() };
        let Ok(page) = self.store.emails(team, query).await else { return };
        let people = |to: &[String]| to.iter().cloned().collect::<BTreeSet<String>>();
        let wished = |email: &&Email| wish.to.iter().any(|to| people(to) == people(&email.head.to));
        for email in page.rows.iter().filter(wished) {
            // Only what ended is ever forgotten, by the clock of whoever is furthest ahead.
            let over = email.settled_at.is_some_and(|at| at.0 + email.ttl.0 <= self.shared.latest() + LEEWAY_MS);
            if over && self.shared.forgotten(email.id) {
                let mut call = Call::new(0, &team_name(wish.team), Verb::Forget);
                (call.key, call.about) = (Some(key.clone()), Some(email.id.to_string()));
                let call = self.shared.invoke(call);
                self.shared.end(call, End::Ok { first: true, ids: Vec::new() }, false);
            }
        }
    }

    /// Asks something about an email, as this team.
    pub(super) async fn deed(self, engine: Arc<Engine>, told: Told, deed: Deed, team: usize) {
        let owner = self.callers[told.team].team.id;
        let Ok(Some(before)) = self.store.email(owner, told.id).await else { return };
        if deed == Deed::Forget && told.key.is_none() {
            return;
        }
        let caller = self.callers[team].clone();
        let call = self.shared.invoke(self.about(&told, deed, team));
        let done = match deed {
            Deed::Cancel => engine.cancel(&caller, told.id, None).await.map(|email| vec![email.thing.id]),
            Deed::Resend => engine.resend(&caller, told.id, None, None).await.map(|sent| {
                self.learn(Told { id: sent.id, team, key: None });
                vec![sent.id]
            }),
            Deed::Resolve(choice) | Deed::ResolveStale(choice) => {
                let stale = u32::from(matches!(deed, Deed::ResolveStale(_)));
                let wish = Resolve { choice, rev: before.rev - stale, handoff: None, reason: None };
                engine.resolve(&caller, told.id, wish, None).await.map(|email| vec![email.id])
            }
            Deed::Forget => match told.key.as_deref().and_then(|key| Key::parse(key).ok()) {
                Some(key) => engine.forget_key(&caller, &key).await.map(|_| Vec::new()),
                None => return,
            },
            Deed::Look => engine.email(&caller, told.id).await.map(|email| vec![email.id]),
        };
        let end = match done {
            Ok(ids) => End::Ok { first: false, ids: ids.iter().map(ToString::to_string).collect() },
            Err(problem) => failed(&problem),
        };
        let after = self.store.email(owner, told.id).await.ok().flatten();
        let must_fail = team == told.team && after.is_some_and(|after| must_fail(deed, &before, &after));
        self.shared.end(call, end, must_fail);
    }

    fn about(&self, told: &Told, deed: Deed, team: usize) -> Call {
        let verb = match deed {
            Deed::Cancel => Verb::Cancel,
            Deed::Resend => Verb::Resend,
            Deed::Resolve(_) | Deed::ResolveStale(_) => Verb::Resolve,
            Deed::Forget => Verb::Forget,
            Deed::Look => Verb::Look,
        };
        let may_fail: &[&str] = match deed {
            Deed::Cancel => &["too_late"],
            Deed::Resend => &["not_terminal", "use_resolve", "budget_spent", "key_mismatch", "already_answered"],
            Deed::Resolve(_) | Deed::ResolveStale(_) => &["stale_rev", "not_unknown"],
            Deed::Forget => &["not_terminal", "not_found"],
            Deed::Look => &[],
        };
        let mut call = Call::new(0, &team_name(team), verb);
        call.may_fail = may_fail.iter().map(|code| (*code).to_owned()).collect();
        if team != told.team {
            call.may_fail.push("not_found".into());
        }
        if deed == Deed::Forget {
            call.key.clone_from(&told.key);
        } else {
            call.about = Some(told.id.to_string());
        }
        call
    }

    /// A provider tells something, to the team it belongs to or to another. Told again later when nobody took it in.
    pub(super) async fn report(self, engine: Arc<Engine>, hop: Arc<Hop>, report: Report, team: TeamId, name: String) {
        let mut call = Call::new(0, &name, Verb::Report);
        (call.about, call.may_fail) = (Some(report.email.to_string()), vec!["not_found".into()]);
        let call = self.shared.invoke(call);
        let fact = Evidence {
            handoff: report.handoff,
            attempt: None,
            at: engine.now(),
            source: Source::ProviderEvent,
            says: report.says,
            detail: "the provider says so".into(),
            once: Some(report.once.clone()),
        };
        let end = match engine.learn(team, report.email, fact).await {
            Ok(true) => End::Ok { first: false, ids: Vec::new() },
            Ok(false) => End::Fail { status: 404, code: "not_found".into() },
            Err(problem) => {
                hop.report_again(report);
                failed(&problem)
            }
        };
        self.shared.end(call, end, false);
    }
}

/// Whether a deed was not allowed at any moment between two looks.
fn must_fail(deed: Deed, before: &Email, after: &Email) -> bool {
    let still = before.handoffs == after.handoffs;
    match deed {
        Deed::Cancel => {
            let out =
                |email: &Email| email.handoffs.iter().any(|h| h.state.is_terminal() && !h.state.is_surely_unsent());
            out(before) || (in_doubt(before) && in_doubt(after))
        }
        Deed::Resend => still && before.resent_as.is_none() && !before.state().is_terminal(),
        Deed::ResolveStale(_) => true,
        Deed::Forget => still && !before.state().is_terminal(),
        Deed::Resolve(_) => still && before.rev == after.rev && before.state() != EmailState::Unknown,
        Deed::Look => false,
    }
}
