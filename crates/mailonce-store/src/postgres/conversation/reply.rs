//! Replies and forwards: the email, its guards and all its effects, in one transaction.
//!
//! The key is locked first, then the thread. Two replies to one message or in one thread wait for each other there,
//! on one node or on two. The second is judged by the state that the first committed.

use deadpool_postgres::Transaction;
use mailonce_core::{
    conversation::{
        caps::RecentReplyTimes,
        reply_guards::{self, NewReply, ReplyResult, ReplyVerdict},
    },
    id::{EmailId, TeamId},
    outbound::{accept::AcceptResult, email::Email, key_binding::KeyBinding},
    time::Time,
};
use std::collections::BTreeSet;

use super::row::lock_message_and_thread;
use crate::postgres::{
    SharedState,
    control::budgets,
    conversation::changes::lock_tally,
    error::TxResult,
    locked_tx::{load_more_emails, load_unit_of_work, lock_scopes},
    outbound::content_guard,
    row::TeamKey,
    unit_of_work::{UnitOfWork, keys_to_lock},
};

/// Accepts a reply or a forward if all guards agree, or returns the guard that refused it.
pub(crate) async fn accept_reply(shared: &SharedState, new_reply: &NewReply, now: Time) -> TxResult<ReplyResult> {
    let inner = &new_reply.email;
    let scopes: BTreeSet<TeamKey> = keys_to_lock(inner).collect();
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    lock_scopes(&tx, &scopes).await?;
    let mut work = load_unit_of_work(&tx, &shared.time, &scopes, &[]).await?;
    if let Some(bound) = inner.key.and_then(|key| work.key_binding(inner.team, key, now)) {
        tx.rollback().await?;
        return Ok(ReplyResult::KeyBound(bound));
    }
    let Some(mut context) = load_reply_context(&tx, &mut work, new_reply).await? else {
        tx.rollback().await?;
        return Ok(ReplyResult::Missing);
    };
    let answer = check_and_accept_reply(&mut work, &mut context, new_reply, now);
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(answer)
}

/// Locks and loads the state that the guards need. `None` when the team has no such message.
async fn load_reply_context(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    new_reply: &NewReply,
) -> TxResult<Option<reply_guards::ReplyContext>> {
    let team = new_reply.email.team;
    let Some((message, thread)) = lock_message_and_thread(tx, team, new_reply.message).await? else { return Ok(None) };
    let before = match message.annotations.progress.answered_by(&new_reply.slot) {
        Some(id) => effective_version(tx, work, team, id).await?,
        None => None,
    };
    budgets::lock(tx, work, std::iter::once(&new_reply.email)).await?;
    let person = match new_reply.recipient_hash {
        Some(person) => lock_tally(tx, team, person).await?,
        None => RecentReplyTimes::default(),
    };
    content_guard::lock_recent_content(tx, work, std::iter::once(&new_reply.email)).await?;
    Ok(Some(reply_guards::ReplyContext { message, thread, previous_reply: before, recipient_tally: person }))
}

/// The version of an email that counts: the email itself or one of its resends.
async fn effective_version(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    team: TeamId,
    mut id: EmailId,
) -> TxResult<Option<Email>> {
    let mut found: Option<Email> = None;
    loop {
        load_more_emails(tx, work, std::iter::once((team, id))).await?;
        let Some(email) = work.email_of_team(team, id) else { return Ok(found) };
        let next = email.resent_as;
        found = Some(match found {
            Some(earlier) => reply_guards::effective_version(earlier, email),
            None => email,
        });
        match next {
            Some(next) => id = next,
            None => return Ok(found),
        }
    }
}

/// Whether an email is still a version of the reply to its message. True when it is no reply. Locks the message's
/// thread, so that no other reply is accepted meanwhile.
pub(crate) async fn is_current_reply(tx: &Transaction<'_>, work: &mut UnitOfWork, email: &Email) -> TxResult<bool> {
    let Some(id) = email.head.answers else { return Ok(true) };
    let Some((message, _)) = lock_message_and_thread(tx, email.team, id).await? else { return Ok(true) };
    for (_, first) in &message.annotations.progress.answers {
        let mut version = Some(*first);
        while let Some(id) = version {
            if id == email.id {
                return Ok(true);
            }
            load_more_emails(tx, work, std::iter::once((email.team, id))).await?;
            version = work.email_of_team(email.team, id).and_then(|email| email.resent_as);
        }
    }
    Ok(false)
}

/// Updates the progress of the message that an email answers, after the email changed. The unit of work already has
/// the email's new state.
pub(crate) async fn update_message_progress(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    (before, after): (&Email, &Email),
    now: Time,
) -> TxResult<()> {
    let Some(id) = reply_guards::message_to_reassess(before, after) else { return Ok(()) };
    let Some((mut message, mut thread)) = lock_message_and_thread(tx, after.team, id).await? else { return Ok(()) };
    if let Some(person) = reply_guards::recipient_counted_on_release(&message, before, after) {
        thread.count_released_reply(now);
        work.conversations.threads.insert(thread.id, thread);
        if let Some(person) = person {
            let mut tally = lock_tally(tx, after.team, person).await?;
            tally.record(now);
            work.conversations.tally = Some((after.team, person, tally, now));
        }
    }
    let mut answers = Vec::new();
    for id in message.annotations.progress.replies().collect::<Vec<_>>() {
        answers.push(effective_version(tx, work, after.team, id).await?);
    }
    if let Some(event) = reply_guards::reassess_message(&mut message, &answers, after.id, now) {
        work.events.push((after.team, event));
        work.conversations.messages.insert(message.id, message);
    }
    Ok(())
}

/// Checks the guards, and accepts the reply if they agree.
fn check_and_accept_reply(
    work: &mut UnitOfWork,
    context: &mut reply_guards::ReplyContext,
    new_reply: &NewReply,
    now: Time,
) -> ReplyResult {
    let team = new_reply.email.team;
    match new_reply.check_guards(context, now) {
        ReplyVerdict::Refuse(guard, newer) => {
            work.events.push((team, new_reply.refusal_event(guard, context, now)));
            ReplyResult::Refused(guard, newer, context.message.clone(), context.thread.clone())
        }
        ReplyVerdict::AlreadyAnswered(id) => {
            ReplyResult::AlreadyAnswered(id, context.previous_reply.clone(), context.thread.clone())
        }
        ReplyVerdict::Accept(guard) => {
            let mut inner = new_reply.email.clone();
            inner.guard_input.holds = inner.guard_input.holds.union(guard.into());
            match work.accept(inner, now) {
                AcceptResult::First(email) => save_reply_effects(work, context, new_reply, email, now),
                AcceptResult::KeyBound(bound) => ReplyResult::KeyBound(bound),
                // A reply is recognized by its slot and is never asked for identical emails.
                AcceptResult::Identical(email) => ReplyResult::KeyBound(KeyBinding::Email(email)),
                AcceptResult::OverBudget(exceeded) => ReplyResult::OverBudget(exceeded),
            }
        }
    }
}

/// Records the effects of an accepted reply on its message, thread and tally.
fn save_reply_effects(
    work: &mut UnitOfWork,
    context: &mut reply_guards::ReplyContext,
    new_reply: &NewReply,
    email: Email,
    now: Time,
) -> ReplyResult {
    let team = new_reply.email.team;
    let before = context.recipient_tally.clone();
    let events = new_reply.apply(context, &email, now);
    work.events.extend(events.into_iter().map(|event| (team, event)));
    let conversations = &mut work.conversations;
    conversations.messages.insert(context.message.id, context.message.clone());
    conversations.threads.insert(context.thread.id, context.thread.clone());
    conversations.joined_emails.push((team, context.thread.id, email.id));
    let counted = new_reply.recipient_hash.filter(|_| context.recipient_tally != before);
    conversations.tally = counted.map(|person| (team, person, context.recipient_tally.clone(), now));
    ReplyResult::First(email, context.thread.clone())
}
