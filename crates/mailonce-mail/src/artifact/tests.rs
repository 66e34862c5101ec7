//! Tests of single rules. The corpus of whole mails is in `tests/artifacts`.

use super::*;
use crate::{link::LinkPolicy, parse::parse};

fn extracted(subject: &str, text: &str) -> ExtractedArtifacts {
    let mail = parse(format!("Subject: {subject}\nContent-Type: text/plain; charset=utf-8\n\n{text}").as_bytes());
    let links = crate::link::check_links(&mail, None, &LinkPolicy::default());
    extract(&mail, None, &links)
}

#[track_caller]
fn check(text: &str, code: Option<&str>) {
    let found = extracted("", text);
    assert_eq!(found.decided(Kind::Code).map(|code| code.value.as_str()), code, "{text:?} {found:?}");
}

#[test]
fn values_have_neither_separators_nor_prefixes() {
    for text in [
        "G-482913 is your Google verification code.",
        "Your code: 482 913",
        "Your code is 482-913.",
        "Code: 4 8 2 9 1 3",
        "Code: ４８２９１３",
        "رمز التحقق: ٤٨٢٩١٣",
        "Your code is:\n\n  4-8-2-9-1-3",
    ] {
        check(text, Some("482913"));
    }
    check("Your Steam Guard code:\n\nTF35D", Some("TF35D"));
    check("Your confirmation code: 84A-KMN", Some("84AKMN"));
    check("Login to Acme.\n\n@acme.example #774102", Some("774102"));
}

#[test]
fn other_numbers_are_not_codes() {
    for text in [
        "Your order number is 482913.",
        "Call us: 555-0123",
        "Use promo code 482913 at the checkout",
        "Copyright 2026. This is your code of conduct.",
        "Error code: 500123",
        "Your code expires in 1440 minutes",
        "Never share this code with anyone. Room 4829",
        "ZIP code 94043",
        "Pay 4829 EUR with your code",
        "Card ending in 4829",
        "The code is in build 20261115",
        "IP 203.0.113.4829",
        "Meeting on 2026-11-15 at 1030",
    ] {
        check(text, None);
    }
}

#[test]
fn two_codes_are_no_code() {
    let found = extracted("", "Your code for Ada: 482913\nYour code for Bob: 771204");
    assert_eq!(found.decided, []);
    let values: Vec<&str> = found.candidates.iter().map(|code| code.value.as_str()).collect();
    assert_eq!(values, ["482913", "771204"]);
    assert!(found.candidates.iter().all(|code| code.reasons.contains(&Reason::Ambiguous)));
}

#[test]
fn an_older_code_in_a_quote_is_only_a_candidate() {
    let found = extracted("Re: x", "Thanks!\n\nOn 1 Jan 2026, Acme <a@acme.example> wrote:\n> Your code is 482913");
    assert_eq!(found.decided, []);
    assert_eq!(found.candidates[0].value, "482913");
    assert!(found.candidates[0].reasons.contains(&Reason::Quoted));
}

#[test]
fn masked_values_cannot_be_read_anywhere() {
    let text = "Your code: 482 913\nfull width ４８２９１３\nhttps://acme.example/verify?token=a1b2c3d4e5f6";
    let found = extracted("482913 is your code", text);
    let hidden = redact_text(text, &found);
    assert_eq!(hidden, "Your code: ••• •••\nfull width ••••••\nhttps://acme.example/…");
    assert_eq!(masked_value(found.decided(Kind::Code).unwrap()), "••••••");
}

#[test]
fn floods_end() {
    for piece in [
        "code 123456 ",
        "code",
        "1 ",
        "1234 ",
        "A1-",
        "@a",
        "wrote: 1\n",
        "code\n\n123456\n",
        "https://x.example/?code=1234 ",
        "\u{200b}1",
    ] {
        let text = piece.repeat(200_000 / piece.len());
        let found = extracted(piece, &format!("{text}\n> x"));
        assert!(found.candidates.len() <= MAX_CANDIDATES);
        assert!(redact_text(&text, &found).len() <= text.len() * 4);
    }
}
