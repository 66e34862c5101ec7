//! Upkeep: the sweep that forgets expired keys, drops old bodies and deletes expired tombstones.

use mailonce_core::{id::EmailId, installation::SweepCounts, limits, mutant, outbound::email::Email, time::Time};

use crate::memory::{
    Tables,
    outbound::tables::{KeyTarget, OutboundTables},
};

impl Tables {
    /// Deletes what has expired.
    pub(crate) fn sweep(&mut self, max: usize, now: Time) -> SweepCounts {
        let mut swept = SweepCounts::default();
        self.control.sweep_budgets(now);
        let mut due: Vec<EmailId> =
            self.outbound.sweep_at.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).take(max).collect();
        if mutant!("live-key-swept") {
            due = self.outbound.emails.keys().copied().collect();
        }
        for id in due {
            self.sweep_email(id, now, &mut swept);
        }
        self.outbound.sweep_operations(now);
        swept.deliveries = self.inbound.sweep_deliveries(max, now);
        swept.notices = self.events.webhooks.sweep_notices(max, now);
        self.erase_from_search();
        swept
    }

    fn sweep_email(&mut self, id: EmailId, now: Time, swept: &mut SweepCounts) {
        let Some(email) = self.outbound.emails.get(&id).cloned() else { return };
        if (email.is_forgotten(now) || mutant!("live-key-swept"))
            && self.outbound.release_key_and_slots(&email, email.expires_at().unwrap_or(now))
        {
            swept.keys += 1;
        }
        if email.expiry().body.is_some_and(|at| at <= now) && self.outbound.bodies.remove(&id).is_some() {
            self.handoffs.wires.retain(|(wired, _), _| *wired != id);
            swept.bodies += 1;
        }
        if email.expiry().tombstone.is_some_and(|at| at <= now) {
            self.remove_traces(&email, swept);
            self.outbound.sweep_at.remove(&id);
        } else {
            self.outbound.schedule_sweep(&email, now);
        }
    }

    fn remove_traces(&mut self, email: &Email, swept: &mut SweepCounts) {
        if let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) {
            let row = self.outbound.keys.get(&(email.team, key));
            if row.is_some_and(|row| row.target.is_none() && row.bind_number == email.bind_number) {
                self.outbound.edit_key(email.team, key, |row| {
                    row.bind_number = 0;
                    row.forgotten_at = None;
                });
                swept.tombstones += 1;
            }
        }
        self.outbound.emails.remove(&email.id);
        self.handoffs.attempts.remove(&email.id);
        self.handoffs.evidence.remove(&email.id);
        self.handoffs.wires.retain(|(id, _), _| *id != email.id);
        self.outbound.suppressed.remove(&email.id);
    }
}

impl OutboundTables {
    /// Turns expired operations into tombstones, and deletes expired tombstones.
    pub(crate) fn sweep_operations(&mut self, now: Time) {
        for row in self.keys.values_mut() {
            if let Some(KeyTarget::Operation { expires_at, .. }) = row.target
                && expires_at <= now
            {
                row.target = None;
                row.forgotten_at = Some(expires_at);
                row.tombstone_until = Some(expires_at.plus(limits::TOMBSTONE_MS));
            }
        }
        self.keys.retain(|_, row| {
            if row.tombstone_until.is_some_and(|at| at <= now) {
                (row.bind_number, row.forgotten_at, row.tombstone_until) = (0, None, None);
            }
            row.bind_number > 0 || row.slot.is_some()
        });
    }
}
