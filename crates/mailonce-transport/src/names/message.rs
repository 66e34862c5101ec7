//! DNS messages (RFC 1035), as far as a question for TXT or MX records needs them. Answers are hostile bytes.

/// The sizes of a message that is asked for by UDP (EDNS, RFC 6891): what passes everywhere in one piece.
const UDP_BYTES: u16 = 1_232;
/// Records of an answer that are looked at.
const RECORDS: usize = 100;
/// Octets of all texts together.
const TEXT_BYTES: usize = 64 * 1024;
/// Octets of a name on the wire.
const NAME_BYTES: usize = 255;
/// Jumps inside a compressed name.
const JUMPS: usize = 32;

pub(super) const TXT: u16 = 16;
pub(super) const MX: u16 = 15;
const CNAME: u16 = 5;
const IN: u16 = 1;

/// What a server said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The texts of the name; none when there are none, or no such name. An MX is its preference and its host.
    Texts(Vec<String>),
    /// More than fits: to be asked again by TCP.
    Truncated,
    /// The server could not tell.
    Failed(u8),
}

/// A question for the records of one type of a name. `None` when it is no name.
pub(super) fn question(id: u16, name: &str, kind: u16) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(64 + name.len());
    message.extend(id.to_be_bytes());
    // Recursion desired; one question; one additional record.
    message.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    if message.len() > 12 + NAME_BYTES || !name.is_ascii() {
        return None;
    }
    message.extend([kind.to_be_bytes(), IN.to_be_bytes()].concat());
    // OPT: the root name, the type, our size, no extended flags, no data.
    message.push(0);
    message.extend([41_u16.to_be_bytes(), UDP_BYTES.to_be_bytes(), [0, 0], [0, 0], [0, 0]].concat());
    Some(message)
}

/// The answer to a question. `None` when it is no answer to this one.
pub(super) fn answer(bytes: &[u8], id: u16, name: &str, kind: u16) -> Option<Answer> {
    let mut reader = Reader { bytes, at: 0 };
    let (found, flags) = (reader.number()?, reader.number()?);
    let is_response = flags & 0x8000 != 0;
    let (questions, answers) = (reader.number()?, reader.number()?);
    reader.skip(4)?;
    if found != id || !is_response || questions != 1 {
        return None;
    }
    let asked = reader.name()?;
    if asked != name.trim_end_matches('.').to_ascii_lowercase() || reader.number()? != kind || reader.number()? != IN {
        return None;
    }
    if flags & 0x0200 != 0 {
        return Some(Answer::Truncated);
    }
    match (flags & 0x000f) as u8 {
        0 => texts(&mut reader, asked, kind, usize::from(answers)).map(Answer::Texts),
        3 => Some(Answer::Texts(Vec::new())),
        code => Some(Answer::Failed(code)),
    }
}

/// The texts of a name, and of the names it stands for.
fn texts(reader: &mut Reader<'_>, asked: String, wanted: u16, answers: usize) -> Option<Vec<String>> {
    let (mut names, mut texts, mut octets) = (vec![asked], Vec::new(), 0);
    for _ in 0..answers.min(RECORDS) {
        let owner = reader.name()?;
        let (kind, class) = (reader.number()?, reader.number()?);
        reader.skip(4)?;
        let length = usize::from(reader.number()?);
        let end = reader.at.checked_add(length).filter(|end| *end <= reader.bytes.len())?;
        if class == IN && names.contains(&owner) {
            match kind {
                CNAME => names.push(Reader { bytes: reader.bytes, at: reader.at }.name()?),
                kind if kind == wanted => {
                    octets += length;
                    let text = match kind {
                        MX => exchanger(Reader { bytes: reader.bytes, at: reader.at })?,
                        _ => text(reader.bytes.get(reader.at..end)?)?,
                    };
                    texts.extend(Some(text).filter(|_| octets <= TEXT_BYTES));
                }
                _ => {}
            }
        }
        reader.at = end;
    }
    Some(texts)
}

/// The strings of a TXT record, joined without spaces.
fn text(mut data: &[u8]) -> Option<String> {
    let mut text = Vec::with_capacity(data.len());
    while let Some((length, rest)) = data.split_first() {
        let (string, after) = rest.split_at_checked(usize::from(*length))?;
        text.extend(string);
        data = after;
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// An MX record: its preference and its host.
fn exchanger(mut data: Reader<'_>) -> Option<String> {
    Some(format!("{} {}", data.number()?, data.name()?))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }

    /// A name in lower case, compressed or not. Jumps only lead back, so that they end.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let (mut after, mut jumps) = (None, 0);
        loop {
            let start = self.at;
            let length = usize::from(self.byte()?);
            match length {
                0 => break,
                1..=63 => {
                    let label = self.bytes.get(self.at..self.at + length)?;
                    self.skip(length)?;
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(label.iter().map(|b| char::from(b.to_ascii_lowercase())));
                    if name.len() > 2 * NAME_BYTES {
                        return None;
                    }
                }
                0xc0.. => {
                    let to = ((length & 0x3f) << 8) | usize::from(self.byte()?);
                    after.get_or_insert(self.at);
                    jumps += 1;
                    if to >= start || jumps > JUMPS {
                        return None;
                    }
                    self.at = to;
                }
                _ => return None,
            }
        }
        self.at = after.unwrap_or(self.at);
        Some(name)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An answer to a question, with these flags and records. A record is its owner, type and data.
    pub(in crate::names) fn reply(question: &[u8], flags: u16, records: &[(&[u8], u16, Vec<u8>)]) -> Vec<u8> {
        let end = question.len() - 11;
        let mut bytes = question[..2].to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend((records.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 0]);
        bytes.extend(&question[12..end]);
        for (owner, kind, data) in records {
            bytes.extend(*owner);
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 60]);
            bytes.extend((data.len() as u16).to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }

    /// The owner that is the asked name.
    pub(in crate::names) const ASKED: &[u8] = &[0xc0, 12];

    pub(in crate::names) fn strings(texts: &[&str]) -> Vec<u8> {
        texts.iter().flat_map(|text| [&[text.len() as u8], text.as_bytes()].concat()).collect()
    }

    #[test]
    fn texts_are_joined_and_follow_aliases() {
        let question = question(7, "_x.Example.com", TXT).unwrap();
        let alias = [b"\x05alias\x04test\0".as_slice()].concat();
        let records = [
            (ASKED, CNAME, alias.clone()),
            (alias.as_slice(), TXT, strings(&["v=DKIM1; p=AA", "BB"])),
            (b"\x05other\x04test\0".as_slice(), TXT, strings(&["not ours"])),
        ];
        let bytes = reply(&question, 0x8180, &records);
        let texts = Answer::Texts(vec!["v=DKIM1; p=AABB".into()]);
        assert_eq!(answer(&bytes, 7, "_x.example.com", TXT), Some(texts));
    }

    #[test]
    fn exchangers_are_read_with_their_preference() {
        let asked = question(7, "a.test", MX).unwrap();
        let records = [(ASKED, MX, b"\0\x0a\x02mx\xc0\x0c".to_vec()), (ASKED, TXT, strings(&["no"]))];
        let bytes = reply(&asked, 0x8180, &records);
        assert_eq!(answer(&bytes, 7, "a.test", MX), Some(Answer::Texts(vec!["10 mx.a.test".into()])));
        assert_eq!(answer(&bytes, 7, "a.test", TXT), None);
    }

    #[test]
    fn what_answers_another_question_is_no_answer() {
        let asked = question(7, "a.test", TXT).unwrap();
        let bytes = reply(&asked, 0x8180, &[]);
        assert_eq!(answer(&bytes, 7, "a.test", TXT), Some(Answer::Texts(Vec::new())));
        assert_eq!(answer(&bytes, 8, "a.test", TXT), None);
        assert_eq!(answer(&bytes, 7, "b.test", TXT), None);
        assert_eq!(answer(&asked, 7, "a.test", TXT), None, "a question is no answer");
    }

    #[test]
    fn the_servers_trouble_is_told_apart_from_no_such_name() {
        let asked = question(7, "a.test", TXT).unwrap();
        let said = |flags| answer(&reply(&asked, flags, &[]), 7, "a.test", TXT);
        assert_eq!(said(0x8183), Some(Answer::Texts(Vec::new())));
        assert_eq!(said(0x8182), Some(Answer::Failed(2)));
        assert_eq!(said(0x8380), Some(Answer::Truncated));
    }

    #[test]
    fn broken_messages_are_refused_and_never_read_beyond() {
        let asked = question(7, "a.test", TXT).unwrap();
        let records = [(ASKED, TXT, strings(&["hello"]))];
        let whole = reply(&asked, 0x8180, &records);
        for end in 0..whole.len() {
            assert_eq!(answer(&whole[..end], 7, "a.test", TXT), None, "cut at {end}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x3f, 0x40, 0xc0, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                // Whatever it is, it ends.
                drop(answer(&bytes, 7, "a.test", TXT));
            }
        }
        let in_circles = reply(&asked, 0x8180, &[(&[0xc0, 24], TXT, strings(&["x"]))]);
        assert_eq!(answer(&in_circles, 7, "a.test", TXT), None);
    }

    #[test]
    fn only_names_are_asked_for() {
        for bad in ["", "a..b", &"a".repeat(64), &"a.".repeat(200), "ü.test"] {
            assert_eq!(question(1, bad, TXT), None, "{bad}");
        }
    }
}
