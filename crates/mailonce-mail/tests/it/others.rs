//! Python parses our output: `email` parses the mails, `dkimpy` verifies the signatures.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    address::NamedAddress,
    outbound::content::{Attachment, EmailContent},
};
use mailonce_mail::dkim::{DkimAlgorithm, DkimDnsRecord, DkimKey, DkimSigner, sign};
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Map, Value, json};
use std::path::Path;

use crate::{
    letters::{OwnedComposeInput, compose_inputs},
    python,
};

/// Random inputs from a fixed seed.
fn some_inputs(count: usize) -> Vec<OwnedComposeInput> {
    let chance = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), chance);
    (0..count).map(|_| compose_inputs().new_tree(&mut runner).unwrap().current()).collect()
}

fn person(mailbox: &NamedAddress) -> Value {
    let name = mailbox.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    json!([name, mailbox.address])
}

fn people(list: &[NamedAddress]) -> Value {
    list.iter().map(person).collect()
}

/// A body with its lines ended by LF.
fn body(text: Option<&String>) -> Value {
    text.map_or(Value::Null, |text| json!(text.replace("\r\n", "\n").replace('\r', "\n")))
}

/// Attachments in the order of the parts: inline ones first.
fn files(content: &EmailContent) -> Value {
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
fn python_parses_every_mail_as_composed() {
    let cases: Value = some_inputs(300)
        .iter()
        .map(|input| json!({ "mail": STANDARD.encode(input.compose().unwrap()), "asked": expected_mail(input) }))
        .collect();
    python::run(Path::new("python3"), "read_mail.py", &cases);
}

fn expected_mail(input: &OwnedComposeInput) -> Value {
    let content = &input.content;
    json!({
        "names": input.header_names(),
        "from": people(std::slice::from_ref(&content.from)),
        "to": people(&content.to),
        "cc": people(&content.cc),
        "reply_to": people(&content.reply_to),
        "subject": content.subject,
        "date": input.date.0.div_euclid(1_000),
        "zone": true,
        "message_id": input.message_id,
        "in_reply_to": input.in_reply_to,
        "references": input.references,
        "id": input.id.to_string(),
        "custom": content.headers,
        "text": body(content.text.as_ref()),
        "html": body(content.html.as_ref()),
        "files": files(content),
        "defects": [],
    })
}

#[test]
fn dkimpy_verifies_both_kinds_of_signature() {
    let keys = [
        ("r1", DkimAlgorithm::Rsa, [11; 32]),
        ("e1", DkimAlgorithm::Ed25519, [12; 32]),
        ("r2", DkimAlgorithm::Rsa, [13; 32]),
    ];
    let keys = keys.map(|(selector, algorithm, seed)| (selector, DkimKey::generate(algorithm, seed).unwrap()));
    let signers = keys.each_ref().map(|(selector, key)| DkimSigner { domain: "example.com", selector, key });
    let records: Map<String, Value> = signers.iter().map(record).collect();
    let rsa: Vec<String> = keys.iter().filter(|(_, key)| key.algorithm() == DkimAlgorithm::Rsa).map(pkcs8).collect();
    let cases = some_inputs(40).into_iter().map(|mut input| {
        // dkimpy rejects a signature from the future.
        input.date.0 %= 1_700_000_000_000;
        let signed = sign(&input.compose().unwrap(), &signers, input.date).unwrap();
        json!({ "mail": STANDARD.encode(signed), "records": records, "signatures": signers.len() })
    });
    let cases: Vec<Value> = cases.collect();
    let dkimpy = python::with("dkimpy", "dkim, nacl", &["dkimpy==1.1.8", "pynacl==1.6.2"]);
    python::run(&dkimpy, "verify_dkim.py", &json!({ "mails": cases, "rsa": rsa }));
}

fn record(signer: &DkimSigner<'_>) -> (String, Value) {
    let record = DkimDnsRecord::for_key(signer.key, signer.selector, signer.domain).unwrap();
    (record.name, json!(record.value))
}

fn pkcs8((_, key): &(&str, DkimKey)) -> String {
    STANDARD.encode(key.to_pkcs8())
}
