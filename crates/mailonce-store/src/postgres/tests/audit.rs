//! The audit log on PostgreSQL: tampered rows are found, and two nodes write one chain.

use mailonce_core::{
    control::audit::{act::Act, chain},
    ports::{audit_store::AuditStore as _, store::Store as _},
    record::{Record, RecordKind},
};
use std::sync::Arc;
use uuid::Uuid;

use super::{NOW, TEAM, TestDatabase};

fn act(number: u64) -> Act {
    Act::new(Some(TEAM), "rule.changed", format!("rule/{number}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_byte_of_any_cell_is_found() {
    let database = TestDatabase::create().await;
    let (store, session) = (database.node().await, database.session().await);
    for number in 0..3 {
        store.record_act(act(number), NOW).await.unwrap();
    }
    let length: i32 =
        session.query_one("SELECT length(entry) FROM audit_entries WHERE seq = 2", &[]).await.unwrap().get(0);
    let flip_bytes = |table: &str, column: &str, length: i32| -> Vec<String> {
        let flip =
            |at: i32| format!("UPDATE {table} SET {column} = set_byte({column}, {at}, get_byte({column}, {at}) # 1)");
        (0..length).map(flip).collect()
    };
    let flip_number = |table: &str, column: &str| -> Vec<String> {
        (0..63).step_by(8).map(|bit| format!("UPDATE {table} SET {column} = {column} # (1::bigint << {bit})")).collect()
    };
    let of_entry = |statements: Vec<String>| statements.into_iter().map(|sql| format!("{sql} WHERE seq = 2"));
    let mut statements: Vec<String> = of_entry(flip_bytes("audit_entries", "entry", length)).collect();
    statements.extend(of_entry(flip_bytes("audit_entries", "hash", 32)));
    statements.extend(of_entry(flip_number("audit_entries", "seq")));
    statements.extend(of_entry(vec!["UPDATE audit_entries SET team = gen_random_uuid()".into()]));
    for (column, seq) in [("start_hash", "start_seq"), ("hash", "seq")] {
        statements.extend(flip_bytes("audit_chains", column, 32));
        statements.extend(flip_number("audit_chains", seq));
    }
    statements.push("UPDATE audit_chains SET team = gen_random_uuid()".into());
    statements.push("DELETE FROM audit_chains".into());
    statements.push("DELETE FROM audit_entries WHERE seq = 3".into());

    for table in ["audit_entries", "audit_chains"] {
        session.batch_execute(&format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}")).await.unwrap();
    }
    for sql in &statements {
        // The table itself refuses a number that another entry has.
        if session.batch_execute(sql).await.is_ok() {
            let page = store.audit_page(TEAM, 0, 100).await.unwrap();
            assert!(chain::verify(TEAM, &page).is_err(), "{sql}");
        }
        for table in ["audit_entries", "audit_chains"] {
            let put_back = format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}");
            session.batch_execute(&put_back).await.unwrap();
        }
    }
    assert_eq!(chain::verify(TEAM, &store.audit_page(TEAM, 0, 100).await.unwrap()), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_act_whose_entry_cannot_be_written_does_not_happen() {
    let database = TestDatabase::create().await;
    let (store, session) = (database.node().await, database.session().await);
    let record = Record {
        team: TEAM,
        kind: RecordKind::Rule,
        id: Uuid::from_u128(9),
        name: "ours".into(),
        rev: 1,
        created_at: NOW,
        json: "{}".into(),
    };
    session.batch_execute("ALTER TABLE audit_entries RENAME TO elsewhere").await.unwrap();

    assert!(store.create_record(record.clone(), None).await.is_err());

    assert_eq!(store.record(TEAM, RecordKind::Rule, record.id).await.unwrap(), None, "the change was undone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_write_one_chain() {
    let database = TestDatabase::create().await;
    let nodes = [Arc::new(database.node().await), Arc::new(database.node().await)];
    let acts = (0..60).map(|number| {
        let node = Arc::clone(&nodes[number as usize % 2]);
        tokio::spawn(async move { node.record_act(act(number), NOW).await.unwrap() })
    });
    for act in acts.collect::<Vec<_>>() {
        act.await.unwrap();
    }
    let page = nodes[0].audit_page(TEAM, 0, 100).await.unwrap();
    assert_eq!((chain::verify(TEAM, &page), page.rows.len()), (Ok(()), 60));
}
