//! Handing off: leases, acts and what processes that ended left behind. The email's row is the lock of its handoffs.

use deadpool_postgres::{GenericClient, Transaction};
use mailonce_core::{
    dispatch::{Act, Verdict},
    email::Email,
    handoff::Handoff,
    id::{EmailId, NodeId, TeamId},
    limits,
    port::store::{
        Acted, Backlog, Heartbeat, LeaseWish, Leased, Once, Operation, Orphans, Recovered, TransportAccount,
    },
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::PoisonError,
    time::Instant,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Ledger,
    careful::{load, lock_emails, lock_free, lock_scopes, read_many},
    conversation::turn_over,
    gate::{Gate, Traveller},
    ground::{Ground, Scoped},
    notices::notice::recover_held,
    peers::{Silent, beat, holder_is_gone},
    row::{Scope, read_emails},
    trouble::{Tried, Trouble, insist},
    upkeep::database_clock,
    write::{ask, email_columns_of, run},
};

/// Due handoffs in their order, as many as no other worker holds. What this statement saw may be old by the time the
/// lock is held, so the emails are read again under it.
const DUE: &str = "
    SELECT h.team, h.email, h.number
      FROM handoffs h JOIN emails e ON e.team = h.team AND e.id = h.email
     WHERE h.transport = $1 AND h.state IN ('queued', 'scheduled') AND h.due_at IS NOT NULL AND h.due_at <= $2
       AND (h.state = 'queued' OR h.due_at <= $5::bigint)
       AND NOT EXISTS (SELECT FROM unnest($4::text[]) AS busy (domain) WHERE strpos(h.recipients, busy.domain) > 0)
     ORDER BY h.due_at, h.email, h.number LIMIT $3
       FOR UPDATE OF e SKIP LOCKED";
/// What is due at transports that the asking process has. Attempts in doubt at another account under the same name are
/// left to a process that has had that account of late.
const DOUBTS: &str = "
    SELECT h.team, h.email, h.number
      FROM unnest($3::text[], $4::text[]) AS mine (name, account)
      JOIN handoffs h ON h.transport = mine.name
     WHERE h.state = 'unknown' AND h.due_at <= $1
       AND NOT EXISTS (SELECT FROM transports t
            WHERE t.name = h.transport AND t.account <> mine.account AND t.account = h.work::json ->> 'account'
              AND t.seen_at > now() - $5 * interval '1 millisecond')
     ORDER BY h.due_at, h.email, h.number LIMIT $2";
const PUBLISH: &str = "
    INSERT INTO transports (name, account, seen_at)
    SELECT name, account, now() FROM unnest($1::text[], $2::text[]) AS mine (name, account) ORDER BY name, account
        ON CONFLICT (name, account) DO UPDATE SET seen_at = now()";
const FORGET_TRANSPORTS: &str = "DELETE FROM transports WHERE seen_at < now() - interval '1 day'";
/// Transports for which something waits are found one by one along the index, so that a long queue costs nothing.
const UNCLAIMED: &str = "
    WITH RECURSIVE waiting (name) AS (
        (SELECT min(transport) FROM handoffs WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL)
        UNION ALL
        SELECT (SELECT min(transport) FROM handoffs
                 WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL AND transport > name)
          FROM waiting WHERE name IS NOT NULL),
    doubted (name) AS (
        (SELECT min(transport) FROM handoffs WHERE state = 'unknown')
        UNION ALL
        SELECT (SELECT min(transport) FROM handoffs WHERE state = 'unknown' AND transport > name)
          FROM doubted WHERE name IS NOT NULL),
    unclaimed AS (
        SELECT name FROM waiting UNION SELECT name FROM doubted
        EXCEPT SELECT unnest($1::text[])
        EXCEPT SELECT name FROM transports WHERE seen_at > now() - $2 * interval '1 millisecond')
    SELECT h.team, h.transport, count(*) FILTER (WHERE h.state <> 'unknown'), count(*) FILTER (WHERE h.state = 'unknown')
      FROM unclaimed u JOIN handoffs h ON h.transport = u.name
       AND (h.state IN ('queued', 'scheduled') AND h.due_at IS NOT NULL OR h.state = 'unknown')
     GROUP BY h.team, h.transport ORDER BY h.team, h.transport COLLATE \"C\"";
const OPEN_AT: &str = "
    SELECT DISTINCT team, email FROM (
        SELECT team, email FROM handoffs
         WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL AND transport = $1
        UNION ALL SELECT team, email FROM handoffs WHERE state IN ('leased', 'sending') AND transport = $1
        UNION ALL SELECT team, email FROM handoffs WHERE state = 'unknown' AND transport = $1) open
     WHERE (team, email) > ($2, $3) ORDER BY team, email LIMIT $4";
const NODES: &str = concat!("SELECT peer.id, ", beat!(), " FROM nodes peer");
/// Handoffs of processes that are gone.
const LEFT: &str = concat!(
    "
    SELECT h.team, h.email, h.number, h.holder FROM handoffs h JOIN emails e ON e.team = h.team AND e.id = h.email
     WHERE h.state IN ('leased', 'sending') AND h.holder IS NOT NULL AND h.holder <> $1 AND ",
    holder_is_gone!("h"),
    " ORDER BY h.email, h.number LIMIT $4
       FOR UPDATE OF e SKIP LOCKED"
);
const HEARTBEAT: &str = "
    INSERT INTO nodes (id, seen_at) VALUES ($1, now()) ON CONFLICT (id) DO UPDATE SET seen_at = now()";
const SEEN: &str = "UPDATE install SET seen_at = $1::bigint WHERE seen_at IS NULL OR seen_at < $1::bigint - 60000";
const LATEST: &str = concat!("SELECT i.seen_at, ", database_clock!(), " FROM install i");
const FORGET_NODES: &str = "DELETE FROM nodes WHERE id = ANY($1)";
/// The bodies of emails, and the frozen bytes for their ways.
const BYTES: &str = "
    SELECT e.id, e.body, x.bytes FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS w (team, id, transport)
      JOIN emails e ON e.team = w.team AND e.id = w.id
      LEFT JOIN wires x ON x.team = w.team AND x.email = w.id AND x.transport = w.transport";
const KNOWN: &str = "SELECT FROM evidence WHERE team = $1 AND email = $2 AND once = $3";
const REMOTE: &str = "
    SELECT email, handoff FROM attempts WHERE team = $1 AND remote_id = $2
     ORDER BY email, handoff, number LIMIT 1";
const WAITING: &str = "
    SELECT transport, count(*), min(due_at) FROM handoffs
     WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL GROUP BY transport ORDER BY transport";
const UNKNOWN: &str = "SELECT count(*) FROM handoffs WHERE state = 'unknown'";

/// Reads the team, email and number that a row begins with.
fn place(row: &Row) -> Tried<(Scoped, u16)> {
    let scoped = (TeamId(row.try_get::<_, Uuid>(0)?), EmailId(row.try_get::<_, Uuid>(1)?));
    Ok((scoped, row.try_get::<_, i32>(2)? as u16))
}

/// Emails that are locked already, as they are now.
async fn ground_of(tx: &Transaction<'_>, held: &BTreeSet<Scoped>) -> Tried<Ground> {
    let emails = read_emails(&read_many(tx, held).await?, 0)?;
    Ok(Ground { emails: emails.into_iter().map(|email| (email.id, email)).collect(), ..Ground::default() })
}

impl Ledger {
    /// Gives due handoffs to a worker, in one commit.
    pub(super) async fn lease(&self, wish: &LeaseWish, now: Time) -> Tried<Vec<Leased>> {
        let busy: Vec<String> = wish.but.iter().map(|domain| format!("@{domain}\"")).collect();
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let rows =
            ask(&tx, DUE, &[&wish.transport, &now.0, &(wish.max as i64), &busy, &wish.scheduled_by.map(|at| at.0)])
                .await?;
        let due = rows.iter().map(place).collect::<Tried<Vec<_>>>()?;
        let held: BTreeSet<Scoped> = due.iter().map(|(scoped, _)| *scoped).collect();
        let mut ground = ground_of(&tx, &held).await?;
        let mut leased = Vec::new();
        for ((team, id), number) in due {
            let Some(mut email) = ground.of_team(team, id) else { continue };
            let still = |h: &Handoff| wish.may_have(h, now);
            if email.handoffs.get(usize::from(number)).is_some_and(still) && email.lease(number, wish.node, now) {
                ground.changed.insert(id, Time(i64::MIN));
                ground.emails.insert(id, email.clone());
                leased.push((email, number));
            }
        }
        let leased = with_bytes(&tx, leased).await?;
        self.settle(tx, &ground, 1).await?;
        Ok(leased)
    }

    /// A handoff with what a worker needs to hand it over.
    pub(super) async fn leased(&self, team: TeamId, id: EmailId, number: u16) -> Tried<Option<Leased>> {
        let Some(email) = self.email(team, id).await? else { return Ok(None) };
        let client = self.link.client().await?;
        Ok(with_bytes(&client, vec![(email, number)]).await?.pop())
    }

    /// Writes down what happened and what it means: together with what happens to other emails at the same time, where
    /// it needs nothing but its own email, and that one is free.
    pub(super) async fn act(
        &self,
        scoped: Scoped,
        act: Act,
        operation: Option<&Operation>,
        now: Time,
    ) -> Tried<Once<Acted>> {
        if operation.is_none() && act.once().is_none() {
            let together = self.acts.pass(Acting { scoped, act: act.clone(), now }).await?;
            if let Some(acted) = together {
                return Ok(Once::Done(acted));
            }
        }
        // On the heap: few go alone.
        Box::pin(async { insist!(self.act_alone(scoped, &act, operation, now)) }).await
    }

    /// Writes down what happened to several emails, in one commit. `None` for those that have to go alone: somebody
    /// else holds them, and the others must not wait for that, or whose turn it is hangs on them.
    async fn act_together(&self, all: &[Acting]) -> Tried<Vec<Option<Acted>>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let free = lock_free(&tx, &all.iter().map(|one| one.scoped).collect()).await?;
        let mut ground = ground_of(&tx, &free).await?;
        let answers = all.iter().map(|one| {
            let email = ground.of_team(one.scoped.0, one.scoped.1)?;
            if email.head.answers.is_some() {
                return None;
            }
            match acted(&mut ground, one.scoped, &one.act, false, None, self.time.of(one.now)) {
                Once::Done(acted) => Some(acted),
                Once::Repeated(_) | Once::Mismatch(_) => None,
            }
        });
        let answers = answers.collect();
        self.settle(tx, &ground, all.len()).await?;
        Ok(answers)
    }

    async fn act_alone(
        &self,
        scoped: Scoped,
        act: &Act,
        operation: Option<&Operation>,
        now: Time,
    ) -> Tried<Once<Acted>> {
        let scopes: BTreeSet<Scope> = operation.iter().map(|operation| (operation.team, operation.key)).collect();
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        lock_emails(&tx, &BTreeSet::from([scoped])).await?;
        let mut ground = load(&tx, &self.time, &scopes, &[scoped]).await?;
        let known = match act.once() {
            Some(once) => !ask(&tx, KNOWN, &[&scoped.0.0, &scoped.1.0, &once]).await?.is_empty(),
            None => false,
        };
        let (before, now) = (ground.of_team(scoped.0, scoped.1), self.time.of(now));
        let answer = acted(&mut ground, scoped, act, known, operation, now);
        if let (Some(before), Once::Done(Acted::Email(_, email))) = (&before, &answer) {
            turn_over(&tx, &mut ground, (before, email), now).await?;
        }
        self.settle(tx, &ground, 1).await?;
        Ok(answer)
    }

    /// Unknown handoffs that are due to be looked at.
    pub(super) async fn doubts(&self, mine: &[TransportAccount], max: usize, now: Time) -> Tried<Vec<(Email, u16)>> {
        let (names, accounts) = columns(mine);
        let recent = limits::ORPHANED_AFTER_MS as f64;
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let rows = ask(&tx, DOUBTS, &[&now.0, &(max as i64), &names, &accounts, &recent]).await?;
        let due = rows.iter().map(place).collect::<Tried<Vec<_>>>()?;
        let emails = read_emails(&read_many(&tx, &due.iter().map(|(scoped, _)| *scoped).collect()).await?, 0)?;
        tx.rollback().await?;
        let emails: BTreeMap<EmailId, Email> = emails.into_iter().map(|email| (email.id, email)).collect();
        Ok(due.into_iter().filter_map(|((_, id), number)| Some((emails.get(&id)?.clone(), number))).collect())
    }

    /// Says which transports a live process has.
    pub(super) async fn publish_transports(&self, mine: &[TransportAccount]) -> Tried<()> {
        let (names, accounts) = columns(mine);
        run(&self.link.client().await?, PUBLISH, &[&names, &accounts]).await?;
        Ok(())
    }

    /// What waits for transports that no live process has.
    pub(super) async fn orphans(&self, known: &[String]) -> Tried<Vec<Orphans>> {
        let alive = limits::ALIVE_MS as f64;
        let mut found = Vec::new();
        for row in ask(&self.link.client().await?, UNCLAIMED, &[&known, &alive]).await? {
            let (waiting, unknown) = (row.try_get::<_, i64>(2)? as u64, row.try_get::<_, i64>(3)? as u64);
            found.push(Orphans { team: TeamId(row.try_get(0)?), transport: row.try_get(1)?, waiting, unknown });
        }
        Ok(found)
    }

    /// Emails of which something is open at a transport.
    pub(super) async fn open_at(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Tried<Vec<(TeamId, EmailId)>> {
        let (team, id) = after.map_or((Uuid::nil(), Uuid::nil()), |(team, id)| (team.0, id.0));
        let rows = ask(&self.link.client().await?, OPEN_AT, &[&transport, &team, &id, &(limit as i64)]).await?;
        rows.iter().map(|row| Ok((TeamId(row.try_get(0)?), EmailId(row.try_get(1)?)))).collect()
    }

    /// Records that a process lives, and reads the database's clock.
    pub(super) async fn heartbeat(&self, node: NodeId, now: Time) -> Tried<Heartbeat> {
        let client = self.link.client().await?;
        run(&client, HEARTBEAT, &[&node.0]).await?;
        run(&client, SEEN, &[&now.0]).await?;
        let rows = ask(&client, LATEST, &[]).await?;
        let row = rows.first().ok_or_else(|| Trouble::unreadable("the installation"))?;
        let latest: Option<i64> = row.try_get(0)?;
        Ok(Heartbeat { latest: now.max(Time(latest.unwrap_or(now.0))), database: Some(self.read_clock(row, 1)?) })
    }

    /// Which processes fell silent.
    async fn silent(&self, tx: &Transaction<'_>) -> Tried<Silent> {
        let rows = ask(tx, NODES, &[]).await?;
        let read = |row: &Row| Ok((NodeId(row.try_get(0)?), row.try_get(1)?));
        let beats = rows.iter().map(read).collect::<Tried<Vec<_>>>()?;
        Ok(self.peers.lock().unwrap_or_else(PoisonError::into_inner).look(&beats, Instant::now()))
    }

    /// Takes handoffs from processes that ended.
    pub(super) async fn recover(&self, node: NodeId, max: usize, now: Time) -> Tried<Recovered> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let gone = self.silent(&tx).await?;
        let mut left = Vec::new();
        for row in ask(&tx, LEFT, &[&node.0, &gone.nodes, &gone.beats, &(max as i64)]).await? {
            left.push((place(&row)?, NodeId(row.try_get::<_, Uuid>(3)?)));
        }
        let deliveries = self.recover_deliveries(&tx, node, &gone, max, now).await?;
        let notices = recover_held(&tx, node, &gone, max, now).await?;
        let mut recovered = Recovered { deliveries, notices, ..Recovered::default() };
        if left.is_empty() {
            run(&tx, FORGET_NODES, &[&gone.old]).await?;
            run(&tx, FORGET_TRANSPORTS, &[]).await?;
            self.commit(tx, 1).await?;
            return Ok(recovered);
        }
        let mut ground = ground_of(&tx, &left.iter().map(|((scoped, _), _)| *scoped).collect()).await?;
        for ((scoped, number), holder) in left {
            let act = Act::Crash { number, holder };
            let before = ground.of_team(scoped.0, scoped.1);
            let answer = acted(&mut ground, scoped, &act, false, None, now);
            if let (Some(before), Once::Done(Acted::Email(Verdict::Done, email))) = (before, answer) {
                turn_over(&tx, &mut ground, (&before, &email), now).await?;
                recovered.count(&email, number);
            }
        }
        self.settle(tx, &ground, 1).await?;
        Ok(recovered)
    }

    /// The handoff that a next hop knows under its own name.
    pub(super) async fn by_remote_id(&self, team: TeamId, remote_id: &str) -> Tried<Option<(EmailId, u16)>> {
        let rows = ask(&self.link.client().await?, REMOTE, &[&team.0, &remote_id]).await?;
        let read = |row: &Row| Tried::Ok((EmailId(row.try_get(0)?), row.try_get::<_, i32>(1)? as u16));
        rows.first().map(read).transpose()
    }

    /// What waits.
    pub(super) async fn backlog(&self) -> Tried<Backlog> {
        let client = self.link.client().await?;
        let mut backlog = Backlog::default();
        for row in ask(&client, WAITING, &[]).await? {
            backlog.waiting.push((row.try_get(0)?, row.try_get::<_, i64>(1)? as u64));
            let oldest = row.try_get::<_, Option<i64>>(2)?.map(Time);
            backlog.oldest = [backlog.oldest, oldest].into_iter().flatten().min();
        }
        if let Some(row) = ask(&client, UNKNOWN, &[]).await?.first() {
            backlog.unknown = row.try_get::<_, i64>(0)? as u64;
        }
        Ok(backlog)
    }
}

/// Names and accounts, each as a column.
fn columns(mine: &[TransportAccount]) -> (Vec<&str>, Vec<&str>) {
    mine.iter().map(|one| (one.name.as_str(), one.account.as_str())).unzip()
}

/// Handoffs with what a worker needs to hand them over.
async fn with_bytes(client: &(impl GenericClient + ?Sized), leased: Vec<(Email, u16)>) -> Tried<Vec<Leased>> {
    let (teams, ids) = email_columns_of(leased.iter().map(|(email, _)| (email.team, email.id)));
    let way = |(email, number): &(Email, u16)| email.handoffs.get(usize::from(*number)).map(|h| h.transport.clone());
    let ways: Vec<Option<String>> = leased.iter().map(way).collect();
    // Two handoffs of one email are two rows with the same bytes.
    let mut bytes: BTreeMap<EmailId, (Option<Vec<u8>>, Option<Vec<u8>>)> = BTreeMap::new();
    for row in ask(client, BYTES, &[&teams, &ids, &ways]).await? {
        bytes.insert(EmailId(row.try_get(0)?), (row.try_get(1)?, row.try_get(2)?));
    }
    let all = leased.into_iter().map(|(email, number)| {
        let (body, wire) = bytes.get(&email.id).cloned().unwrap_or_default();
        Leased { email, number, body, wire }
    });
    Ok(all.collect())
}

/// What happened to a handoff.
pub(super) struct Acting {
    scoped: Scoped,
    act: Act,
    now: Time,
}

impl Traveller for Acting {
    type Answer = Option<Acted>;

    fn size(&self) -> usize {
        let frozen = match &self.act {
            Act::Mark { wire: Some(wire), .. } => wire.len(),
            _ => 0,
        };
        frozen + 1024
    }

    fn gate(ledger: &Ledger) -> &Gate<Self> {
        &ledger.acts
    }

    async fn travel(ledger: &Ledger, together: &[Self]) -> Tried<Vec<Self::Answer>> {
        ledger.act_together(together).await
    }
}

/// What comes of an act on a locked email.
fn acted(
    ground: &mut Ground,
    (team, id): Scoped,
    act: &Act,
    known: bool,
    operation: Option<&Operation>,
    now: Time,
) -> Once<Acted> {
    if let Some(answer) = operation.and_then(|operation| ground.repeat_of(operation, now)) {
        return answer;
    }
    let Some(mut email) = ground.of_team(team, id) else { return Once::Done(Acted::Missing) };
    if known {
        return Once::Done(Acted::Email(Verdict::Unchanged, email));
    }
    let effects = email.act(act, now);
    if let (Act::Mark { hold, wire: Some(wire) }, Verdict::Done) = (act, effects.verdict) {
        ground.wires.push(((team, id), hold.transport.clone(), wire.clone()));
    }
    ground.attempts.extend(effects.attempts.into_iter().map(|attempt| (team, id, attempt)));
    ground.evidence.extend(effects.evidence.into_iter().map(|fact| (team, id, fact)));
    ground.appended.extend(effects.appended.into_iter().map(|handoff| ((team, id), handoff)));
    ground.events.extend(effects.events.into_iter().map(|event| (team, event)));
    if effects.changed {
        ground.changed.insert(id, Time(i64::MIN));
        ground.emails.insert(id, email.clone());
    }
    if let (Some(operation), Verdict::Done) = (operation, effects.verdict) {
        ground.bind_operation(operation);
    }
    Once::Done(Acted::Email(effects.verdict, email))
}
