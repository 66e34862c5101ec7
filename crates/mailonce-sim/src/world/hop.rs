//! A next hop: what it took, which keys it remembers, what it will take late, and what it reports.

use super::plan::{Class, FaultKind};
use super::shared::Shared;
use crate::proof::history::Arrival;
use mailonce_core::handoff::Says;
use mailonce_core::id::{EmailId, TeamId};
use mailonce_core::port::transport::{Meaning, Parcel, Recovery};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a next hop does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It became a mail.
    New,
    /// It was recognised as a repeat.
    Known,
    /// Its key is known for other bytes.
    Other,
    /// It is busy with another request under the same key.
    Busy,
}

/// A request that will be taken later.
struct Late {
    due: i64,
    parcel: Parcel,
    account: String,
}

/// Something that a provider tells.
#[derive(Clone)]
pub(super) struct Report {
    pub(super) due: i64,
    pub(super) team: TeamId,
    pub(super) email: EmailId,
    pub(super) handoff: u16,
    pub(super) says: Says,
    pub(super) once: String,
}

/// A key that is remembered.
struct Known {
    since: i64,
    bytes: u64,
}

#[derive(Default)]
struct Memory {
    mails: Vec<(EmailId, u16, i64)>,
    keys: BTreeMap<(String, String), Known>,
    late: Vec<Late>,
    reports: Vec<Report>,
}

/// A next hop.
pub(super) struct Hop {
    pub(super) name: String,
    pub(super) class: Class,
    /// How long a mail stays out of look-ups, in milliseconds.
    lag: i64,
    /// Whether it rejects a repeat as a repeat.
    rejects_repeats: bool,
    shared: Arc<Shared>,
    memory: Mutex<Memory>,
}

impl Hop {
    pub(super) fn new(shared: &Arc<Shared>, number: usize, class: Class) -> Arc<Self> {
        let lag = if shared.plan.has(FaultKind::LookUp) { shared.below(240_000) as i64 } else { 0 };
        Arc::new(Self {
            name: format!("hop{number}"),
            class,
            lag,
            rejects_repeats: shared.below(2) == 0,
            shared: Arc::clone(shared),
            memory: Mutex::default(),
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is complete: it becomes a mail, unless its key is remembered.
    pub(super) fn take(&self, parcel: &Parcel, account: &str) -> Taken {
        self.take_at(parcel, account, self.shared.now())
    }

    fn take_at(&self, parcel: &Parcel, account: &str, now: i64) -> Taken {
        let bytes = hash(&parcel.bytes);
        let verdict = self.recognise(parcel, account, bytes, now);
        self.arrive(parcel, verdict == Taken::New);
        if verdict == Taken::New {
            let mut memory = self.memory();
            memory.mails.push((parcel.email, parcel.handoff, now));
            if matches!(self.class, Class::Keyed(_)) {
                memory.keys.insert((account.to_owned(), parcel.key.to_string()), Known { since: now, bytes });
            }
            drop(memory);
            self.plan_reports(parcel, now);
        }
        verdict
    }

    fn recognise(&self, parcel: &Parcel, account: &str, bytes: u64, now: i64) -> Taken {
        let Class::Keyed(window) = self.class else { return Taken::New };
        let memory = self.memory();
        let busy = |late: &Late| late.account == account && late.parcel.key == parcel.key;
        if memory.late.iter().any(busy) {
            return Taken::Busy;
        }
        let known = memory.keys.get(&(account.to_owned(), parcel.key.to_string()));
        match known.filter(|known| now - known.since < window) {
            None => Taken::New,
            Some(known) if known.bytes == bytes => Taken::Known,
            Some(_) => Taken::Other,
        }
    }

    /// What it answers when nothing is wrong with it.
    pub(super) fn answer(&self, taken: Taken) -> Meaning {
        match taken {
            Taken::Known if self.rejects_repeats => Meaning::Repeated,
            Taken::New | Taken::Known => Meaning::Accepted,
            Taken::Other => Meaning::Mismatch,
            Taken::Busy => Meaning::Concurrent,
        }
    }

    /// Notes a request that reached it.
    pub(super) fn arrive(&self, parcel: &Parcel, taken: bool) {
        self.shared.arrive(Arrival {
            at: 0,
            transport: self.name.clone(),
            email: parcel.email.to_string(),
            handoff: Some(parcel.handoff),
            message_id: message_id(&parcel.bytes),
            key: matches!(self.class, Class::Keyed(_)).then(|| parcel.key.to_string()),
            bytes: hash(&parcel.bytes),
            to: parcel.recipients.clone(),
            taken,
            early: self.shared.is_early(parcel.email),
            heard: false,
        });
    }

    /// A request whose connection is gone will be taken all the same.
    pub(super) fn take_later(&self, parcel: Parcel, account: &str) {
        // Later than a window's margin no key can help: what a provider does with a request after it forgot the key is
        // outside of every promise.
        let longest = match self.class {
            Class::Keyed(window) => Recovery::margin_ms(window) - 1_000,
            _ => i64::MAX,
        };
        let due = self.shared.now() + self.shared.pick(&[500, 5_000, 60_000, 11 * 60_000]).min(longest);
        self.memory().late.push(Late { due, parcel, account: account.to_owned() });
    }

    /// Does what is due by now; all of it when nothing more is to come.
    pub(super) fn catch_up(&self, all: bool) {
        let now = self.shared.now();
        let late = std::mem::take(&mut self.memory().late);
        let (due, rest): (Vec<_>, Vec<_>) = late.into_iter().partition(|late| all || late.due <= now);
        self.memory().late = rest;
        for late in due {
            self.take_at(&late.parcel, &late.account, late.due.min(now));
        }
    }

    /// When it took a mail first, if it did.
    pub(super) fn has(&self, email: EmailId, handoff: u16) -> Option<i64> {
        let mail = |(id, number, at): &(EmailId, u16, i64)| (*id == email && *number == handoff).then_some(*at);
        self.memory().mails.iter().find_map(mail)
    }

    /// Whether a look-up finds a mail by now.
    pub(super) fn finds(&self, email: EmailId, handoff: u16) -> bool {
        self.catch_up(false);
        self.has(email, handoff).is_some_and(|at| self.shared.now() - at >= self.lag)
    }

    /// What it will tell about a mail: each fact some times, in any order.
    fn plan_reports(&self, parcel: &Parcel, now: i64) {
        if !self.shared.plan.has(FaultKind::Reports) {
            return;
        }
        let last = self.shared.pick(&[Says::Delivered, Says::Bounced, Says::Complained, Says::Accepted]);
        self.shared.fault(FaultKind::Reports, vec![parcel.email.to_string()]);
        // Every other mail is reported as delayed first, which says as much: whoever delays it has it.
        let first = if parcel.email.0.as_u128().is_multiple_of(2) { Says::Delayed } else { Says::Accepted };
        for (n, says) in [first, Says::Delivered, last].into_iter().enumerate() {
            for _ in 0..self.shared.below(3) {
                let due = now + self.shared.pick(&[0, 1_000, 30_000, 600_000]);
                let once = format!("{}-{}-{n}", parcel.email, parcel.handoff);
                let (team, email, handoff) = (parcel.team, parcel.email, parcel.handoff);
                self.memory().reports.push(Report { due, team, email, handoff, says, once });
            }
        }
    }

    /// Reports that are due, in any order.
    pub(super) fn reports(&self, all: bool) -> Vec<Report> {
        let now = self.shared.now();
        let reports = std::mem::take(&mut self.memory().reports);
        let (mut due, rest): (Vec<_>, Vec<_>) = reports.into_iter().partition(|report| all || report.due <= now);
        self.memory().reports = rest;
        for at in (1..due.len()).rev() {
            due.swap(at, self.shared.below(at as u64 + 1) as usize);
        }
        due
    }

    /// Takes a report back that nobody acknowledged.
    pub(super) fn report_again(&self, report: Report) {
        self.memory().reports.push(report);
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = DefaultHasher::new();
    bytes.hash(&mut hash);
    hash.finish()
}

/// The Message-ID in the bytes of a mail.
fn message_id(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().find_map(|line| line.strip_prefix("Message-ID: "));
    line.unwrap_or_default().trim().to_owned()
}
