//! The journal of erasures: after a restore no email to an erased person leaves, on any node, until the erasures of the
//! journal have been applied.

use mailonce_core::{
    control::erasure::{Erasure, ErasureStage},
    id::TeamId,
    record::RecordKind,
};
use mailonce_engine::{EngineDeps, control::erasures::JournalEntry};
use serde_json::{Value, json};

use super::erasures::{ADDRESS, erase, mail_to_zoe, run, with_everything};
use crate::fixtures::{
    api_fixture::{World, mail_with},
    conversations::TestMail,
    requests::{delete, post},
};

/// A ledger from before an erasure that only the journal knows.
struct RestoredLedger {
    journal: Vec<JournalEntry>,
    /// A queued email to the person.
    to_zoe: String,
    /// A queued email to somebody else.
    other: String,
}

impl RestoredLedger {
    async fn create(world: &World) -> Self {
        let first = erase(world, ADDRESS).await;
        assert_eq!(run(world, &first).await["state"], "done");
        world.advance_clock(1_000);
        let to_zoe = world.send("1", &mail_to_zoe(json!({}))).await.expect_status(202).string_field("id");
        world.advance_clock(1_000);
        let other = world.send("2", &mail_with(json!({}))).await.expect_status(202).string_field("id");
        let mut restored = Self { journal: Vec::new(), to_zoe, other };
        restored.request_again(world).await;
        restored
    }

    /// Adds a request for everything up to now.
    async fn request_again(&mut self, world: &World) {
        world.advance_clock(1_000);
        self.journal = world.engine.erasures.erasure_journal().await.unwrap();
        self.journal[0].requested_at = world.engine.ctx.now();
    }

    /// Applies the journal as a start does. Returns how many erasures were not known.
    async fn apply_journal(&self, world: &World) -> usize {
        world.engine.erasures.apply_erasure_journal(self.journal.clone()).await.unwrap()
    }

    /// The states of the two emails.
    async fn states(&self, world: &World) -> (Value, Value) {
        (world.email(&self.to_zoe).await["state"].clone(), world.email(&self.other).await["state"].clone())
    }
}

async fn saved_erasure(world: &World, team: TeamId) -> Erasure {
    let page = world.engine.ctx.store().records(team, RecordKind::Erasure, None, 10).await.unwrap();
    serde_json::from_str(&page.rows[0].json).unwrap()
}

over_every_engine! {
    async fn another_node_ends_the_stop_of_a_node_that_is_gone(world) {
        let world = with_everything(world).await;
        let restored = RestoredLedger::create(&world).await;
        // This node has found that there is no stop before the other one applies its journal.
        let node = world.second_engine(EngineDeps::default()).await;
        node.ctx.confirm_time();
        node.erasures.find_erasures().await.unwrap();
        node.erasures.run_erasures(usize::MAX).await.unwrap();
        assert_eq!(restored.apply_journal(&world).await, 1);
        world.hand_off_due().await;
        assert_eq!(restored.states(&world).await, (json!("queued"), json!("queued")));

        // From here on the node that created the stop does nothing.
        node.erasures.find_erasures().await.unwrap();
        node.erasures.run_erasures(usize::MAX).await.unwrap();
        node.handoffs.release_stopped().await;
        world.hand_off_due().await;

        assert_eq!(restored.states(&world).await, (json!("cancelled"), json!("sent")));
        assert_eq!(world.get("/v1/stops").await.expect_status(200).rows().len(), 0);
    }

    async fn a_start_stops_email_while_an_erasure_of_the_journal_runs(world) {
        let world = with_everything(world).await;
        let restored = RestoredLedger::create(&world).await;
        assert_eq!(restored.apply_journal(&world).await, 1);
        // As if the process had been killed before it created the stop.
        let stop = world.get("/v1/stops").await.expect_status(200).ids().remove(0);
        world.call(delete(&format!("/v1/stops/{stop}"))).await.expect_status(200);
        world.engine.handoffs.release_stopped().await;
        assert_eq!(world.get("/v1/stops").await.expect_status(200).rows().len(), 0);

        assert_eq!(restored.apply_journal(&world).await, 0, "the record is there");

        world.hand_off_due().await;
        assert_eq!(restored.states(&world).await, (json!("queued"), json!("queued")));
        world.engine.erasures.run_erasures(usize::MAX).await.unwrap();
        world.engine.handoffs.release_stopped().await;
        world.hand_off_due().await;
        assert_eq!(restored.states(&world).await, (json!("cancelled"), json!("sent")));
    }

    async fn the_search_for_an_erased_address_is_saved_after_every_page(world) {
        let mut world = with_everything(world).await;
        let mut restored = RestoredLedger::create(&world).await;
        let mail = |n: usize| mail_with(json!({ "to": [format!("p{n}@example.com")], "text": format!("Number {n}") }));
        let batch: Vec<Value> = (0..248).map(mail).collect();
        world.call(post("/v1/emails/batch").key("many").json(&json!(batch))).await.expect_status(202);
        restored.request_again(&world).await;
        assert_eq!(restored.apply_journal(&world).await, 1);

        let mut cursors = Vec::new();
        loop {
            world.engine.erasures.run_erasures(1).await.unwrap();
            let saved = saved_erasure(&world, restored.journal[0].team).await;
            if saved.stage != ErasureStage::Find {
                assert_eq!((saved.stage, saved.address.as_deref()), (ErasureStage::Emails, Some(ADDRESS)));
                break;
            }
            cursors.push(saved.cursor.unwrap());
            // Another process, which knows only what was saved.
            world = with_everything(world.restart().await).await;
            world.engine.erasures.find_erasures().await.unwrap();
        }

        // The address is in the oldest of 250 emails, so on the third page.
        assert_eq!(cursors.len(), 2, "{cursors:?}");
        assert!(cursors[0] != cursors[1] && cursors.iter().all(|cursor| cursor.starts_with("emails ")), "{cursors:?}");
        world.engine.erasures.run_erasures(usize::MAX).await.unwrap();
        assert_eq!(world.email(&restored.to_zoe).await["state"], "cancelled");
    }

    async fn an_address_is_found_in_received_mail_and_in_records(world) {
        let world = with_everything(world).await;
        world.create_inbox("a").await;
        for (address, count) in [("ann@person.test", "messages"), ("bob@person.test", "records"), ("eve@person.test", "")] {
            let first = erase(&world, address).await;
            assert_eq!(run(&world, &first).await["state"], "done");
            world.advance_clock(1_000);
            match count {
                "messages" => _ = world.receive_message(TestMail { from: address, ..TestMail::default() }).await,
                "records" => _ = world.post("/v1/suppressions", &json!({ "address": address })).await.expect_status(201),
                _ => {}
            }
            world.advance_clock(1_000);
            let mut journal = world.engine.erasures.erasure_journal().await.unwrap();
            journal.retain(|entry| first["alias"] == entry.alias.as_str());
            journal[0].requested_at = world.engine.ctx.now();

            assert_eq!(world.engine.erasures.apply_erasure_journal(journal).await.unwrap(), 1);

            let done = run(&world, &first).await;
            assert_eq!(done["state"], "done");
            if !count.is_empty() {
                assert_eq!(done["counts"][count], 1, "{done}");
            }
        }
    }
}
