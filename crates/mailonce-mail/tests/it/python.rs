//! Another language reads what was written here: Python's `email` the mails, `dkimpy` the signatures.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    address::Mailbox,
    content::{Attachment, Content},
};
use mailonce_mail::dkim::{Algorithm, DkimKey, DnsRecord, Signer, sign};
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Map, Value, json};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::letters::{Owned, letters};

/// Letters by chance, always the same ones.
fn some_letters(count: usize) -> Vec<Owned> {
    let chance = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), chance);
    (0..count).map(|_| letters().new_tree(&mut runner).unwrap().current()).collect()
}

fn person(mailbox: &Mailbox) -> Value {
    let name = mailbox.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    json!([name, mailbox.address])
}

fn people(list: &[Mailbox]) -> Value {
    list.iter().map(person).collect()
}

/// A body with its lines ended by LF.
fn body(text: Option<&String>) -> Value {
    text.map_or(Value::Null, |text| json!(text.replace("\r\n", "\n").replace('\r', "\n")))
}

/// Files in the order of the parts: first what belongs to the HTML.
fn files(content: &Content) -> Value {
    let inline = |file: &Attachment| {
        content.html.is_some() && file.content_id.as_deref().is_some_and(|id| !id.trim().is_empty())
    };
    let (pictures, rest): (Vec<&Attachment>, Vec<&Attachment>) =
        content.attachments.iter().partition(|file| inline(file));
    pictures.into_iter().map(|one| file(one, true)).chain(rest.into_iter().map(|one| file(one, false))).collect()
}

fn file(attachment: &Attachment, inline: bool) -> Value {
    let filename = attachment.filename.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let id = attachment.content_id.as_deref().map(str::trim).filter(|id| !id.is_empty());
    json!({ "filename": filename, "bytes": STANDARD.encode(&attachment.bytes), "inline": inline, "content_id": id })
}

#[test]
fn python_reads_every_mail_as_it_was_asked_for() {
    let cases: Value = some_letters(300)
        .iter()
        .map(|letter| json!({ "mail": STANDARD.encode(letter.compose().unwrap()), "asked": asked(letter) }))
        .collect();
    run(Path::new("python3"), "read_mail.py", &cases);
}

fn asked(letter: &Owned) -> Value {
    let content = &letter.content;
    json!({
        "names": letter.header_names(),
        "from": people(std::slice::from_ref(&content.from)),
        "to": people(&content.to),
        "cc": people(&content.cc),
        "reply_to": people(&content.reply_to),
        "subject": content.subject,
        "date": letter.date.0.div_euclid(1_000),
        "zone": true,
        "message_id": letter.message_id,
        "in_reply_to": letter.in_reply_to,
        "references": letter.references,
        "id": letter.id.to_string(),
        "custom": content.headers,
        "text": body(content.text.as_ref()),
        "html": body(content.html.as_ref()),
        "files": files(content),
        "defects": [],
    })
}

#[test]
fn dkimpy_verifies_both_kinds_of_signature() {
    let keys =
        [("r1", Algorithm::Rsa, [11; 32]), ("e1", Algorithm::Ed25519, [12; 32]), ("r2", Algorithm::Rsa, [13; 32])];
    let keys = keys.map(|(selector, algorithm, seed)| (selector, DkimKey::generate(algorithm, seed).unwrap()));
    let signers = keys.each_ref().map(|(selector, key)| Signer { domain: "example.com", selector, key });
    let records: Map<String, Value> = signers.iter().map(record).collect();
    let rsa: Vec<String> = keys.iter().filter(|(_, key)| key.algorithm() == Algorithm::Rsa).map(pkcs8).collect();
    let cases = some_letters(40).into_iter().map(|mut letter| {
        // dkimpy refuses a signature from the future.
        letter.date.0 %= 1_700_000_000_000;
        let signed = sign(&letter.compose().unwrap(), &signers, letter.date).unwrap();
        json!({ "mail": STANDARD.encode(signed), "records": records, "signatures": signers.len() })
    });
    let cases: Vec<Value> = cases.collect();
    run(&python_with_dkimpy(), "verify_dkim.py", &json!({ "mails": cases, "rsa": rsa }));
}

fn record(signer: &Signer<'_>) -> (String, Value) {
    let record = DnsRecord::of(signer.key, signer.selector, signer.domain).unwrap();
    (record.name, json!(record.value))
}

fn pkcs8((_, key): &(&str, DkimKey)) -> String {
    STANDARD.encode(key.to_pkcs8())
}

/// A Python of our own with dkimpy in it, made once and kept under `target/`.
fn python_with_dkimpy() -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dkimpy");
    let python = home.join("bin/python");
    let ready = Command::new(&python).args(["-c", "import dkim, nacl"]).stderr(Stdio::null()).status();
    if !ready.is_ok_and(|status| status.success()) {
        must("python3 with venv", Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        must("pip", Command::new(&python).args(["-m", "pip", "install", "-q", "dkimpy==1.1.8", "pynacl==1.6.2"]));
    }
    python
}

fn must(what: &str, command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{what} is needed for this test: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} is needed for this test and failed: {said}");
}

/// Runs a helper beside these tests and fails with what it says.
fn run(python: &Path, script: &str, cases: &Value) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{} is needed for this test and does not start: {error}", python.display()));
    // The helper reads all of it before it says a word. If it died instead, what it said comes first.
    let given = child.stdin.take().unwrap().write_all(cases.to_string().as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    given.unwrap();
}
