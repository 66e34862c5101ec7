//! Callers at work: they do deed after deed on a server until it dies, falls asleep, or time is up.

use super::client::{Client, Team};
use super::deed::{self, Deed, Source, Special, Wish};
use super::door::Doors;
use super::mail::Mail;
use super::read::in_state;
use super::table::{Bait, Class};
use crate::proof::history::{End, Verb};
use crate::rig::children::pause;
use crate::sink::oracle::callback::{self, Event, Where};
use crate::sink::oracle::journal::{Journal, Line};
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Deeds of a cycle before callers only do what leads to the point.
const DEEDS: u64 = 7;
/// The numbers of baits lie beyond those of deeds.
const BAITS: u64 = 1_000;
/// Between two baits.
const PATIENTLY: Duration = Duration::from_millis(60);
/// How often what was not answered is asked for again in the end.
const TRIES: usize = 20;
/// Callers at a time.
pub const CALLERS: usize = 2;

/// What callers of a round share.
#[derive(Debug)]
pub struct Callers {
    /// Who asks.
    pub client: Client,
    /// The teams that are known so far.
    pub teams: Mutex<Vec<Team>>,
    /// Where hooks go.
    pub hook: Mutex<Option<Where>>,
    /// What was wished for so far.
    pub wishes: Mutex<Vec<Wish>>,
    /// Where mail is brought by a hook.
    pub inbound: Mutex<Option<String>>,
    /// Where mail is brought by SMTP.
    pub doors: Arc<Doors>,
    /// The mails that senders brought so far.
    pub mails: Mutex<Vec<Mail>>,
    /// What senders were told that they must never be told.
    pub trouble: Mutex<Vec<String>>,
    /// The sink's log.
    pub journal: PathBuf,
}

/// The work of one cycle.
#[derive(Debug)]
pub struct Shift<'a> {
    /// Where deeds come from.
    pub source: Source,
    /// What leads to the point.
    pub bait: Bait,
    /// The servers.
    pub at: &'a [SocketAddr],
    /// Told when it is over.
    pub over: &'a AtomicBool,
    /// The number of the next deed.
    pub next: &'a AtomicU64,
}

pub(super) fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Callers {
    /// Works until it is told that it is over: baits first, then deeds, then baits again.
    pub fn work(&self, shift: &Shift<'_>) {
        let mut baits = 0;
        while !shift.over.load(Ordering::SeqCst) {
            let n = shift.next.fetch_add(1, Ordering::SeqCst);
            let at = shift.at[(n as usize) % shift.at.len()];
            let inbound = shift.source.class == Class::Inbound;
            if (2..DEEDS).contains(&n) && (!inbound || n.is_multiple_of(2)) {
                self.perform(&shift.source, at, shift.source.deed(n));
                continue;
            }
            self.bait(shift, at, BAITS + n, baits);
            baits += 1;
            // A point that takes long needs time rather than mail.
            pause(if n < 2 { Duration::ZERO } else { PATIENTLY * (1 + baits as u32 / 8).min(8) });
        }
    }

    /// Does what leads to the point.
    fn bait(&self, shift: &Shift<'_>, at: SocketAddr, n: u64, before: u64) {
        let source = &shift.source;
        if source.class == Class::Inbound && shift.bait != Bait::Fresh {
            return self.receive(source, at, n, Some(shift.bait));
        }
        let mail = |special| Deed::Ask(source.mail(n, special));
        let deeds = match shift.bait {
            Bait::Fresh | Bait::Start | Bait::Leftover if before > 2 => Vec::new(),
            Bait::Fresh | Bait::Start | Bait::Leftover => vec![mail(Special::No)],
            Bait::Letter | Bait::Parcel | Bait::Large | Bait::Code | Bait::Person => Vec::new(),
            Bait::Mail => vec![mail(if n.is_multiple_of(2) { Special::No } else { Special::Worked })],
            Bait::Batch => vec![Deed::Ask(source.batch(n))],
            Bait::Change => vec![mail(Special::Later), Deed::Cancel(u64::MAX), Deed::Resend(n)],
            Bait::Resolve if before == 0 => vec![mail(Special::Lost), Deed::Resolve(n)],
            Bait::Resolve => vec![Deed::Resolve(n)],
            // A new doubt now and then: the first may be settled before the point is reached.
            Bait::Doubt | Bait::OldDoubt if before.is_multiple_of(16) => vec![mail(Special::Lost)],
            Bait::Doubt | Bait::OldDoubt => Vec::new(),
            Bait::Hook => vec![mail(Special::No), Deed::Tell(n)],
        };
        deeds.into_iter().for_each(|deed| self.perform(source, at, deed));
    }

    /// Does one deed.
    fn perform(&self, source: &Source, at: SocketAddr, deed: Deed) {
        match deed {
            Deed::Ask(mut wish) => {
                // Before there are two teams, the second one's wishes are the first one's.
                wish.team = wish.team.min(held(&self.teams).len() - 1);
                held(&self.wishes).push(wish.clone());
                if wish.is_brief() {
                    self.client.may_forget(&self.team(wish.team), &wish);
                }
                self.ask(at, &wish);
            }
            Deed::Again(which) => {
                if let Some(wish) = self.earlier(which) {
                    self.ask(at, &wish);
                }
            }
            Deed::Otherwise(which) => {
                // Under a key that is not surely bound, other words would be the first.
                let bound = self.earlier(which).filter(|wish| self.is_told(wish));
                let other = bound.and_then(|wish| Some((wish.team, deed::otherwise(&wish)?)));
                if let Some((team, ask)) = other {
                    self.client.ask(at, &self.team(team), &ask);
                }
            }
            Deed::Cancel(which) => self.on_email(at, which, deed::cancel),
            Deed::Resend(which) => self.on_email(at, which, deed::resend),
            Deed::Trespass(which) => self.trespass(at, which),
            Deed::Resolve(which) => self.resolve(at, which),
            Deed::Tell(which) => self.tell(at, source.class, which),
        }
    }

    pub(super) fn ask(&self, at: SocketAddr, wish: &Wish) {
        self.client.ask(at, &self.team(wish.team), &wish.ask);
    }

    /// A team; the first while the other is not there yet.
    pub fn team(&self, n: usize) -> Team {
        let teams = held(&self.teams);
        teams.get(n).or_else(|| teams.first()).cloned().unwrap_or_else(|| deed::team(0, ""))
    }

    /// A wish from before whose key is still remembered.
    fn earlier(&self, which: u64) -> Option<Wish> {
        let wishes = held(&self.wishes);
        let wish = wishes.get((which % wishes.len().max(1) as u64) as usize)?;
        (!wish.is_brief()).then(|| wish.clone())
    }

    /// Whether a wish was surely granted.
    fn is_told(&self, wish: &Wish) -> bool {
        let history = self.client.history();
        let told = |end: &End| matches!(end, End::Ok { .. });
        history.calls.iter().any(|call| call.key == wish.ask.key && told(&call.end))
    }

    /// An email that was told of, with its team: the latest for the highest number.
    fn told(&self, which: u64) -> Option<(Team, String)> {
        let history = self.client.history();
        // An answer that was taken back makes room for another, which the key of a wish never does.
        let made = history.calls.iter().filter(|call| !call.forgives);
        let made = made.filter(|call| matches!(call.verb, Verb::Send | Verb::Batch | Verb::Resend));
        let ids: Vec<(&str, &String)> = made
            .filter_map(|call| match &call.end {
                End::Ok { ids, .. } => Some((call.team.as_str(), ids.first()?)),
                _ => None,
            })
            .collect();
        let place =
            if which == u64::MAX { ids.len().checked_sub(1)? } else { (which % ids.len().max(1) as u64) as usize };
        let (team, id) = ids.get(place)?;
        let team = held(&self.teams).iter().find(|known| known.name == *team)?.clone();
        Some((team, (*id).clone()))
    }

    fn on_email(&self, at: SocketAddr, which: u64, ask: impl Fn(&str) -> super::client::Ask) {
        if let Some((team, id)) = self.told(which) {
            self.client.ask(at, &team, &ask(&id));
        }
    }

    /// The other team asks.
    fn trespass(&self, at: SocketAddr, which: u64) {
        let Some((team, id)) = self.told(which) else { return };
        let other = held(&self.teams).iter().find(|known| known.name != team.name).cloned();
        if let Some(other) = other {
            let cancel = which.is_multiple_of(2).then(|| deed::cancel(&id));
            let ask = cancel.unwrap_or_else(|| deed::trespass(&id));
            self.client.ask(at, &other, &super::client::Ask { may_fail: &["not_found"], ..ask });
        }
    }

    /// A person looks at the sink, and decides by it.
    fn resolve(&self, at: SocketAddr, which: u64) {
        let team = self.team(0);
        let unknown = in_state(at, &team, "unknown").unwrap_or_default();
        let Some((id, rev)) = unknown.get((which % unknown.len().max(1) as u64) as usize) else { return };
        let arrived = self.taken().iter().any(|line| line.email == *id);
        let r#as = match (arrived, which % 3) {
            (true, 1 | 2) => "sent",
            (_, 0) => "resend",
            (false, _) => "abandon",
            (true, _) => "resend",
        };
        self.client.ask(at, &team, &deed::resolve(id, r#as, *rev));
    }

    /// What the sink took so far.
    fn taken(&self) -> Vec<Line> {
        let lines: Vec<Line> = Journal::read(&self.journal).unwrap_or_default();
        lines.into_iter().filter(|line| line.taken).collect()
    }

    /// A provider tells of a mail that it has.
    fn tell(&self, at: SocketAddr, class: Class, which: u64) {
        let Some(hook) = held(&self.hook).clone() else { return };
        let mails: BTreeSet<(String, String)> = if class.transport() == Class::Sandbox.word() {
            let sent = in_state(at, &self.team(0), "sent").unwrap_or_default();
            sent.into_iter().map(|(id, _)| (id, "ada@example.org".to_owned())).collect()
        } else {
            self.taken().into_iter().filter_map(|line| Some((line.email, line.to.first()?.clone()))).collect()
        };
        let place = (which % mails.len().max(1) as u64) as usize;
        let Some((email, to)) = mails.iter().nth(place) else { return };
        let event = Event { id: format!("rig-{which}"), kind: "email.delivered", email, to };
        // A server that dies of it does not answer; the sink's own hooks are insisted on.
        let _answer = callback::tell(&Where { at, ..hook }, &event);
    }

    /// Asks for every wish that was never answered, until it is.
    pub fn ask_the_rest(&self, at: SocketAddr) -> Result<()> {
        for _ in 0..TRIES {
            let open = self.unanswered();
            if open.is_empty() {
                return Ok(());
            }
            open.iter().for_each(|wish| self.ask(at, wish));
        }
        bail!("{} wishes have no answer", self.unanswered().len())
    }

    fn unanswered(&self) -> Vec<Wish> {
        let history = self.client.history();
        let answered = |end: &End| match end {
            End::Ok { .. } => true,
            End::Fail { status, .. } => *status != 503,
            End::Info => false,
        };
        let told: BTreeSet<&str> =
            history.calls.iter().filter(|call| answered(&call.end)).filter_map(|call| call.key.as_deref()).collect();
        let asked: BTreeSet<&str> = history.calls.iter().filter_map(|call| call.key.as_deref()).collect();
        // What nobody ever listened to was not asked.
        let open = |wish: &&Wish| wish.ask.key.as_deref().is_some_and(|key| asked.contains(key) && !told.contains(key));
        held(&self.wishes).iter().filter(open).cloned().collect()
    }
}
