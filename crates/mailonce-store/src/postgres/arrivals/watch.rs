//! Watches: begun at an inbox's latest number, and spent once for each of their resends.

use mailonce_core::{
    id::{TeamId, WatchId},
    port::store::{Once, Operation},
    time::Time,
    watch::{Spent, Watch},
};
use tokio_postgres::types::ToSql;

use super::row::{first, read_watch, watch_columns};
use crate::postgres::{
    Ledger,
    record::bind,
    trouble::{Tried, Trouble},
    write::{ask, run},
};

macro_rules! watches {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            watch_columns!(),
            " FROM watches w JOIN inboxes i ON i.team = w.team AND i.id = w.inbox AND i.removed_at IS NULL
              WHERE w.team = $1 AND w.id = $2",
            $rest
        )
    };
}

const ONE: &str = watches!("");
const ONE_LOCKED: &str = watches!(" FOR UPDATE OF w");
/// The lock lets no message be filed between the look at the number and the commit.
const LATEST: &str = "SELECT seq FROM inboxes WHERE team = $1 AND id = $2 AND removed_at IS NULL FOR SHARE";
const BEGIN: &str = "
    INSERT INTO watches (team, id, inbox, rev, started_at, after, deadline, budget, spent, require_auth)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING";
const SPEND: &str = "UPDATE watches SET rev = $3, spent = $4 WHERE team = $1 AND id = $2";

impl Ledger {
    /// Begins a watch.
    pub(super) async fn create_watch(
        &self,
        watch: &Watch,
        operation: Option<&Operation>,
    ) -> Tried<Once<Option<Watch>>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        if let Some(answer) = bind(&tx, &self.time, operation, watch.started_at).await? {
            tx.rollback().await?;
            return Ok(answer);
        }
        let rows = ask(&tx, LATEST, &[&watch.team.0, &watch.inbox.0]).await?;
        let Some(latest) = rows.first() else {
            tx.rollback().await?;
            return Ok(Once::Done(None));
        };
        let mut watch = watch.clone();
        watch.after = latest.try_get::<_, i64>(0)? as u64;
        let (rev, budget, spent) = (watch.rev as i32, watch.budget as i32, watch.spent as i32);
        let (after, started_at, deadline) = (watch.after as i64, watch.started_at.0, watch.deadline.0);
        let auth = watch.require_auth;
        let params: [&(dyn ToSql + Sync); 10] =
            [&watch.team.0, &watch.id.0, &watch.inbox.0, &rev, &started_at, &after, &deadline, &budget, &spent, &auth];
        if run(&tx, BEGIN, &params).await? == 0 {
            let before = first(&ask(&tx, ONE, &[&watch.team.0, &watch.id.0]).await?, read_watch)?;
            tx.rollback().await?;
            return Ok(Once::Done(Some(before.ok_or_else(|| Trouble::Again("a watch went meanwhile".into()))?)));
        }
        self.commit(tx, 1).await?;
        Ok(Once::Done(Some(watch)))
    }

    /// One watch.
    pub(super) async fn watch_of(&self, team: TeamId, id: WatchId) -> Tried<Option<Watch>> {
        first(&ask(&self.link.client().await?, ONE, &[&team.0, &id.0]).await?, read_watch)
    }

    /// Spends one of a watch's resends.
    pub(super) async fn spend(
        &self,
        team: TeamId,
        id: WatchId,
        operation: Option<&Operation>,
        now: Time,
    ) -> Tried<Once<Spent>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        if let Some(answer) = bind(&tx, &self.time, operation, now).await? {
            tx.rollback().await?;
            return Ok(answer);
        }
        let found = first(&ask(&tx, ONE_LOCKED, &[&team.0, &id.0]).await?, read_watch)?;
        let spent = found.map_or(Spent::Missing, |watch| watch.spend(now));
        match &spent {
            Spent::Done(watch) => {
                run(&tx, SPEND, &[&team.0, &id.0, &(watch.rev as i32), &(watch.spent as i32)]).await?;
                self.commit(tx, 1).await?;
            }
            Spent::Nothing(_) | Spent::Over(_) | Spent::Missing => tx.rollback().await?,
        }
        Ok(Once::Done(spent))
    }
}
