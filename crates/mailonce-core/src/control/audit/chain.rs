//! The hash chain. The hash of an entry covers all of its fields and the hash of the entry before it.
//!
//! The chain shows that no entry was changed, removed from the middle or inserted. Whoever can write to the database can
//! still replace the whole chain with its head. Only a copy of a hash that is kept elsewhere shows that.

use sha2::{Digest as _, Sha256};
use std::fmt;
use uuid::Uuid;

use super::{AuditEntry, AuditPage, NewAuditEntry};
use crate::{
    access::call_origin::{Actor, ActorKind},
    id::TeamId,
    time::Time,
};

/// The first field of an encoded entry, so that a later encoding can differ.
const ENCODING: &[u8] = b"mailonce-audit-1";
/// The number of fields of an encoded entry.
const FIELDS: usize = 12;

/// A place in a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainLink {
    /// The number of the entry; 0 before the first.
    pub seq: u64,
    /// Its hash; zeros before the first.
    pub hash: [u8; 32],
}

/// An entry as stores save it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number.
    pub seq: u64,
    /// The encoded entry.
    pub entry: Vec<u8>,
    /// The hash of the encoded entry.
    pub hash: [u8; 32],
}

impl AuditRow {
    /// The place of this entry.
    pub fn link(&self) -> ChainLink {
        ChainLink { seq: self.seq, hash: self.hash }
    }

    /// When the act happened. `None` if the entry is damaged.
    pub fn at(&self) -> Option<Time> {
        AuditEntry::decode(&self.entry).map(|entry| entry.content.at)
    }
}

/// The row of the next entry after `head`.
pub fn append(head: ChainLink, team: TeamId, content: &NewAuditEntry) -> AuditRow {
    let entry = AuditEntry { team, seq: head.seq + 1, content: content.clone(), prev: head.hash };
    AuditRow { seq: entry.seq, hash: entry.hash(), entry: entry.encode() }
}

impl AuditEntry {
    /// The hash of this entry.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.encode()).into()
    }

    /// The fields in order, each after its length in bytes as 32 bits, big-endian. A missing value is empty, which no
    /// JSON text is.
    pub fn encode(&self) -> Vec<u8> {
        let NewAuditEntry { at, actor, from, action, about, before, after } = &self.content;
        let (seq, at) = (self.seq.to_be_bytes(), at.0.to_be_bytes());
        let fields: [&[u8]; FIELDS] = [
            ENCODING,
            self.team.0.as_bytes(),
            &seq,
            &at,
            actor.kind.as_str().as_bytes(),
            actor.id.as_bytes(),
            from.as_bytes(),
            action.as_bytes(),
            about.as_bytes(),
            before.as_deref().unwrap_or_default().as_bytes(),
            after.as_deref().unwrap_or_default().as_bytes(),
            &self.prev,
        ];
        let mut bytes = Vec::with_capacity(fields.iter().map(|field| field.len() + 4).sum());
        for field in fields {
            bytes.extend_from_slice(&(field.len() as u32).to_be_bytes());
            bytes.extend_from_slice(field);
        }
        bytes
    }

    /// Decodes an entry. `None` for bytes that [`Self::encode`] never returns.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields: Vec<&[u8]> = Vec::with_capacity(FIELDS);
        let mut rest = bytes;
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (field, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            fields.push(field);
            rest = after;
        }
        let [encoding, team, seq, at, kind, id, from, action, about, before, after, prev] = fields[..] else {
            return None;
        };
        let text = |field: &[u8]| String::from_utf8(field.to_vec()).ok();
        let json = |field: &[u8]| if field.is_empty() { Some(None) } else { text(field).map(Some) };
        let content = NewAuditEntry {
            at: Time(i64::from_be_bytes(at.try_into().ok()?)),
            actor: Actor { kind: ActorKind::parse(std::str::from_utf8(kind).ok()?)?, id: text(id)? },
            from: text(from)?,
            action: text(action)?,
            about: text(about)?,
            before: json(before)?,
            after: json(after)?,
        };
        let entry = Self {
            team: TeamId(Uuid::from_slice(team).ok()?),
            seq: u64::from_be_bytes(seq.try_into().ok()?),
            content,
            prev: prev.try_into().ok()?,
        };
        (rest.is_empty() && encoding == ENCODING).then_some(entry)
    }
}

/// What is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainFault {
    /// The number of the entry.
    pub seq: u64,
    /// What is wrong with it.
    pub kind: FaultKind,
}

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It is missing.
    Missing,
    /// Its bytes are no entry, or an entry of another place.
    Damaged,
    /// Its content does not match its hash.
    WrongHash,
    /// It does not continue the entry before it.
    WrongLink,
    /// The head names another entry.
    WrongHead,
}

impl FaultKind {
    /// What is wrong, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "is missing",
            Self::Damaged => "is damaged",
            Self::WrongHash => "was changed: its content does not match its hash",
            Self::WrongLink => "does not continue the entry before it",
            Self::WrongHead => "is not the entry that the head of the chain names",
        }
    }
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} {}", self.seq, self.kind.as_str())
    }
}

/// Decodes a row and checks it without its neighbours.
pub fn check_row(team: TeamId, row: &AuditRow) -> Result<AuditEntry, ChainFault> {
    let fault = |kind| ChainFault { seq: row.seq, kind };
    let own_hash: [u8; 32] = Sha256::digest(&row.entry).into();
    let entry = AuditEntry::decode(&row.entry).ok_or_else(|| fault(FaultKind::Damaged))?;
    if own_hash != row.hash {
        return Err(fault(FaultKind::WrongHash));
    }
    if entry.team != team || entry.seq != row.seq {
        return Err(fault(FaultKind::Damaged));
    }
    Ok(entry)
}

/// Verifies a chain, entry by entry.
#[derive(Clone, Debug)]
pub struct ChainVerifier {
    last: ChainLink,
}

impl ChainVerifier {
    /// Begins after the start of a chain.
    pub fn new(start: ChainLink) -> Self {
        Self { last: start }
    }

    /// The latest entry that was verified.
    pub fn last(&self) -> ChainLink {
        self.last
    }

    /// Checks that an entry with this hash comes next.
    pub fn check(&mut self, entry: &AuditEntry, hash: [u8; 32]) -> Result<(), ChainFault> {
        let expected = self.last.seq + 1;
        if entry.seq > expected {
            return Err(ChainFault { seq: expected, kind: FaultKind::Missing });
        }
        let fault = |kind| Err(ChainFault { seq: entry.seq, kind });
        if entry.hash() != hash {
            return fault(FaultKind::WrongHash);
        }
        // A smaller number is an entry that was inserted or comes twice.
        if entry.seq < expected || entry.prev != self.last.hash {
            return fault(FaultKind::WrongLink);
        }
        self.last = ChainLink { seq: entry.seq, hash };
        Ok(())
    }

    /// Checks that the latest entry is the head of the chain, as it was read together with that entry.
    pub fn finish(&self, head: ChainLink) -> Result<(), ChainFault> {
        if self.last.seq < head.seq {
            return Err(ChainFault { seq: self.last.seq + 1, kind: FaultKind::Missing });
        }
        if self.last != head {
            return Err(ChainFault { seq: self.last.seq, kind: FaultKind::WrongHead });
        }
        Ok(())
    }
}

/// Verifies the rows of a whole chain.
pub fn verify(team: TeamId, page: &AuditPage) -> Result<(), ChainFault> {
    let mut verifier = ChainVerifier::new(page.ends.start);
    for row in &page.rows {
        verifier.check(&check_row(team, row)?, row.hash)?;
    }
    verifier.finish(page.ends.head)
}

#[cfg(test)]
mod tests {
    use super::{super::ChainEnds, *};

    const TEAM: TeamId = TeamId(Uuid::from_u128(7));

    fn content(number: i64) -> NewAuditEntry {
        NewAuditEntry {
            at: Time(number),
            actor: Actor { kind: ActorKind::ApiKey, id: "key".into() },
            from: "cli".into(),
            action: "rule.changed".into(),
            about: format!("rule/{number}"),
            before: (number % 2 == 0).then(|| r#"{"enabled":true}"#.into()),
            after: Some(r#"{"enabled":false}"#.into()),
        }
    }

    fn chain(count: i64) -> AuditPage {
        let (mut head, mut rows) = (ChainLink::default(), Vec::new());
        for number in 1..=count {
            let row = append(head, TEAM, &content(number));
            head = row.link();
            rows.push(row);
        }
        AuditPage { ends: ChainEnds { start: ChainLink::default(), head }, rows }
    }

    fn fault(seq: u64, kind: FaultKind) -> Result<(), ChainFault> {
        Err(ChainFault { seq, kind })
    }

    #[test]
    fn entries_are_read_back() {
        let page = chain(4);
        for row in &page.rows {
            let entry = check_row(TEAM, row).unwrap();
            assert_eq!((entry.content.clone(), entry.encode()), (content(row.seq as i64), row.entry.clone()));
        }
        assert_eq!(verify(TEAM, &page), Ok(()));
        assert_eq!(verify(TEAM, &AuditPage::default()), Ok(()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let page = chain(3);
        for at in 0..page.rows.len() {
            let length = page.rows[at].entry.len();
            for bit in 0..(length + 32) * 8 {
                let mut page = page.clone();
                let (byte, mask, row) = (bit / 8, 1_u8 << (bit % 8), &mut page.rows[at]);
                match byte.checked_sub(length) {
                    None => row.entry[byte] ^= mask,
                    Some(byte) => row.hash[byte] ^= mask,
                }
                let fault = verify(TEAM, &page).unwrap_err();
                assert_eq!(fault.seq, at as u64 + 1, "bit {bit}: {fault}");
            }
        }
    }

    #[test]
    fn removed_moved_and_inserted_entries_are_found() {
        let page = chain(5);
        for at in 0..page.rows.len() {
            let mut shorter = page.clone();
            shorter.rows.remove(at);
            assert_eq!(verify(TEAM, &shorter), fault(at as u64 + 1, FaultKind::Missing));
            let mut doubled = page.clone();
            doubled.rows.insert(at, page.rows[at].clone());
            assert_eq!(verify(TEAM, &doubled), fault(at as u64 + 1, FaultKind::WrongLink));
        }
        let mut swapped = page.clone();
        swapped.rows.swap(1, 2);
        assert_eq!(verify(TEAM, &swapped), fault(2, FaultKind::Missing));
        assert_eq!(
            verify(TeamId(Uuid::from_u128(8)), &page),
            fault(1, FaultKind::Damaged),
            "the chain of another team"
        );
    }

    #[test]
    fn a_rewritten_entry_breaks_the_link_of_the_next() {
        let mut page = chain(3);
        page.rows[1] = append(page.rows[0].link(), TEAM, &content(9));
        assert_eq!(verify(TEAM, &page), fault(3, FaultKind::WrongLink));
        let mut page = chain(3);
        page.rows[2] = append(page.rows[1].link(), TEAM, &content(9));
        assert_eq!(verify(TEAM, &page), fault(3, FaultKind::WrongHead));
    }

    #[test]
    fn wrong_ends_are_found() {
        let page = chain(3);
        for seq in [0, 1, 2, 4, u64::MAX] {
            let mut page = page.clone();
            page.ends.head.seq = seq;
            assert!(verify(TEAM, &page).is_err(), "head {seq}");
        }
        for change in [|ends: &mut ChainEnds| ends.head.hash[0] ^= 1, |ends: &mut ChainEnds| ends.start.hash[31] ^= 1] {
            let mut page = page.clone();
            change(&mut page.ends);
            assert!(verify(TEAM, &page).is_err());
        }
        assert_eq!(verify(TEAM, &AuditPage { rows: Vec::new(), ..page }), fault(1, FaultKind::Missing));
    }

    #[test]
    fn a_chain_without_its_oldest_entries_is_verified_from_its_start() {
        let mut page = chain(5);
        page.ends.start = page.rows[1].link();
        page.rows.drain(..2);
        assert_eq!(verify(TEAM, &page), Ok(()));
        page.rows.remove(0);
        assert_eq!(verify(TEAM, &page), fault(3, FaultKind::Missing));
        let all_expired = AuditPage { ends: ChainEnds { start: page.ends.head, ..page.ends }, rows: Vec::new() };
        assert_eq!(verify(TEAM, &all_expired), Ok(()));
    }
}
