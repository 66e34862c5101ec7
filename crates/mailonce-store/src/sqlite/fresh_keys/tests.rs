//! Tests that no key is lost, and that no bound key becomes free again.

use super::*;
use crate::sqlite::schema;

const TEAM: i64 = 1;

fn key(n: u64) -> KeyHash {
    let mut hash = [0; 16];
    // Spread over the key space, as real hashes are.
    hash[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    KeyHash(hash)
}

fn ledger() -> (tempfile::TempDir, Connection) {
    let home = tempfile::tempdir().unwrap();
    let (conn, _) = schema::open_writer(&home.path().join("ledger.db"), &[7; 32]).unwrap();
    (home, conn)
}

fn commit(conn: &Connection, hand: &mut FreshKeyWriter<'_>, verbs: impl FnOnce(&mut FreshKeyWriter<'_>)) {
    hand.begin_group();
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    verbs(hand);
    hand.write_block().unwrap();
    conn.execute_batch("COMMIT").unwrap();
    hand.publish();
}

impl FreshKeyWriter<'_> {
    /// Binds a key if it is free, as an accept does.
    fn bind_if_free(&mut self, team: i64, key: KeyHash, email: i64) -> bool {
        let is_free = self.is_free(team, key).unwrap();
        if is_free {
            self.bind_free(team, key, email);
        }
        is_free
    }
}

fn count(conn: &Connection, table: &str) -> usize {
    conn.query_row(&format!("SELECT COUNT(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap() as usize
}

/// The email of a key, read from the fresh keys first and from the tree second.
fn bound(conn: &Connection, hand: &FreshKeyWriter<'_>, key: KeyHash) -> Option<i64> {
    let sql = "SELECT email FROM keys WHERE team = ?1 AND hash = ?2";
    hand.get(TEAM, key).or_else(|| conn.query_row(sql, params![TEAM, key.0], |row| row.get(0)).ok())
}

#[test]
fn no_key_is_lost_or_free_again_while_keys_move() {
    let (_home, conn) = ledger();
    let mut hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
    for group in 0..200 {
        commit(&conn, &mut hand, |hand| {
            for n in group * 7..group * 7 + 7 {
                assert!(hand.bind_if_free(TEAM, key(n), n as i64));
                assert!(!hand.bind_if_free(TEAM, key(n), 99), "twice in a group");
            }
        });
        assert!(hand.shared.len() <= hand.shared.max_fresh() + 7);
        if group % 50 == 49 {
            hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
        }
    }
    hand.begin_group();
    for n in 0..1_400 {
        assert_eq!(bound(&conn, &hand, key(n)), Some(n as i64), "{n}");
        assert!(!hand.bind_if_free(TEAM, key(n), 99), "{n} is free again");
    }
    assert!(hand.bind_if_free(TEAM + 1, key(0), 5), "another team's key");
    assert!(count(&conn, "keys") > 1_200, "hardly any key was moved");
    assert!(count(&conn, "fresh_keys") < 60, "blocks pile up");
}

#[test]
fn what_was_rolled_back_is_gone() {
    let (_home, conn) = ledger();
    let mut hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
    commit(&conn, &mut hand, |hand| assert!(hand.bind_if_free(TEAM, key(1), 1)));
    hand.begin_group();
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(hand.bind_if_free(TEAM, key(2), 2));
    hand.flush_key(TEAM, key(1)).unwrap();
    assert_eq!(hand.get(TEAM, key(1)), None, "it lies in the tree now");
    conn.execute_batch("ROLLBACK").unwrap();
    hand.begin_group();
    assert_eq!((hand.get(TEAM, key(1)), hand.get(TEAM, key(2))), (Some(1), None));
    assert_eq!(count(&conn, "keys"), 0);
}

#[test]
fn a_savepoint_takes_back_its_own_part_alone() {
    let (_home, conn) = ledger();
    let mut hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
    commit(&conn, &mut hand, |hand| assert!(hand.bind_if_free(TEAM, key(1), 1)));
    commit(&conn, &mut hand, |hand| {
        assert!(hand.bind_if_free(TEAM, key(2), 2));
        let mark = hand.savepoint();
        conn.execute_batch("SAVEPOINT verb").unwrap();
        assert!(hand.bind_if_free(TEAM, key(3), 3));
        hand.flush_key(TEAM, key(1)).unwrap();
        conn.execute_batch("ROLLBACK TO verb; RELEASE verb").unwrap();
        hand.roll_back_to(mark);
    });
    let hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
    let left: Vec<_> = (1..=3).map(|n| hand.get(TEAM, key(n))).collect();
    assert_eq!(left, [Some(1), Some(2), None]);
}

#[test]
fn after_a_restart_the_tree_knows_better_than_a_block() {
    let (_home, conn) = ledger();
    let mut hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
    commit(&conn, &mut hand, |hand| assert!(hand.bind_if_free(TEAM, key(1), 1)));
    commit(&conn, &mut hand, |hand| {
        hand.flush_key(TEAM, key(1)).unwrap();
        conn.execute("UPDATE keys SET email = 2, bind = 2", []).unwrap();
    });
    assert_eq!((hand.get(TEAM, key(1)), bound(&conn, &hand, key(1))), (None, Some(2)));
    assert_eq!(count(&conn, "fresh_keys"), 1);
    let hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
    assert_eq!((hand.get(TEAM, key(1)), bound(&conn, &hand, key(1))), (None, Some(2)));
}

#[test]
fn blocks_do_not_pile_up_when_no_round_ever_ends() {
    let (_home, conn) = ledger();
    for n in 0..120 {
        let mut hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
        commit(&conn, &mut hand, |hand| {
            for n in n * 7..n * 7 + 7 {
                assert!(hand.bind_if_free(TEAM, key(n), n as i64));
            }
        });
    }
    let hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
    assert!((0..840).all(|n| bound(&conn, &hand, key(n)) == Some(n as i64)));
    assert!(count(&conn, "fresh_keys") < 10, "blocks pile up");
}

#[test]
fn a_savepoint_restores_the_flush_cycle() {
    let (_home, conn) = ledger();
    let mut hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
    commit(&conn, &mut hand, |hand| assert!(hand.bind_if_free(TEAM, key(1), 1)));
    // A sweep flushes keys and is then rolled back to its savepoint. Without the rollback of the cycle, the second
    // sweep would drop the block of the key that the first sweep's rollback made fresh again.
    for _ in 0..2 {
        commit(&conn, &mut hand, |hand| {
            let mark = hand.savepoint();
            conn.execute_batch("SAVEPOINT verb").unwrap();
            hand.flush_some().unwrap();
            conn.execute_batch("ROLLBACK TO verb; RELEASE verb").unwrap();
            hand.roll_back_to(mark);
        });
    }
    let hand = FreshKeyWriter::new(&conn, Arc::default()).unwrap();
    assert_eq!(bound(&conn, &hand, key(1)), Some(1), "a restart forgot the key");
}
