//! The requests that are measured.

use mailonce_sim::harness::server::API_KEY;
use mailonce_sim::load::RequestTemplate;

/// Nearly 900 bytes of plain words, as a mail has them: neither noise nor one letter repeated.
const TEXT: &str = "Hello,\\n\\nthank you for your order. Everything you chose was in stock, so the parcel left our \
    warehouse this morning and should reach you within two working days. You can follow it with the number below; \
    the first scan usually shows up in the evening.\\n\\nIf nobody is at home the driver will try one neighbour and \
    then leave the parcel at the nearest shop, with a card in your letter box that says where. Should anything be \
    missing or broken, answer this mail within two weeks and add a photograph if you can: that is enough for us to \
    send a replacement, no forms needed.\\n\\nThe invoice is part of your account page, where you can also change \
    how we reach you. We write about an order only when something happened to it, and never \
    more than once about the same thing; should that fail, we would like to hear of it.\\n\\nKind regards from all of us \
    here,\\nthe agent on duty tonight";

/// One email to a recipient of its own, about 1 KB of JSON.
fn email(recipient: &str) -> String {
    format!(
        r#"{{"from":"agent@example.com","to":"{recipient}@example.org","subject":"Your order {{n}} is on its way","text":"{TEXT}"}}"#
    )
}

fn post(path: &str, key: Option<&str>, body: &str) -> RequestTemplate {
    let bearer = format!("Bearer {API_KEY}");
    let mut headers = vec![("Authorization", bearer.as_str())];
    headers.extend(key.map(|key| ("Idempotency-Key", key)));
    RequestTemplate::post(path, &headers, body)
}

/// The bare JSON echo.
pub(crate) fn echo() -> RequestTemplate {
    post("/bench/echo", None, &email("user-{n}"))
}

/// A send; its number is in key, recipient and subject, and `tag` in the first two.
pub(crate) fn send(tag: &str) -> RequestTemplate {
    post("/v1/emails", Some(&format!("{tag}-{{n}}")), &email(&format!("{tag}-{{n}}")))
}

/// A send of a caller at an address of its own, which a proxy reports.
pub(crate) fn send_from(tag: &str, address: &str) -> RequestTemplate {
    let (bearer, key) = (format!("Bearer {API_KEY}"), format!("{tag}-{{n}}"));
    let headers = [("Authorization", bearer.as_str()), ("Idempotency-Key", key.as_str()), ("X-Forwarded-For", address)];
    RequestTemplate::post("/v1/emails", &headers, &email(&key))
}

/// A batch of `size` sends under one key.
pub(crate) fn batch(size: usize) -> RequestTemplate {
    let items: Vec<_> = (0..size).map(|item| email(&format!("batch-{{n}}-{item}"))).collect();
    post("/v1/emails/batch", Some("batch-{n}"), &format!("[{}]", items.join(",")))
}

/// The same send whatever its number.
pub(crate) fn storm() -> RequestTemplate {
    post("/v1/emails", Some("storm"), &email("storm").replace("{n}", "4821"))
}

/// A claim under a key of its own.
pub(crate) fn claim() -> RequestTemplate {
    post("/v1/claims", None, r#"{"key":"invoice-{n}","lease_s":60,"holder":"bench-{n}"}"#)
}

/// The completion of a claim.
pub(crate) fn complete(id: &str, token: &str) -> RequestTemplate {
    let body = format!(r#"{{"token":"{token}","result":{{"number":17}}}}"#);
    post(&format!("/v1/claims/{id}/complete"), None, &body)
}

/// A send as the seeds' pattern takes it.
pub(crate) fn seeds() -> RequestTemplate {
    post("/send", Some("send-{n}"), &email("user-{n}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn bodies_are_json_of_about_a_kilobyte() {
        let body = super::email("user-000000000042");
        assert!((950..1100).contains(&body.len()), "{} bytes", body.len());
        let mail: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(mail["to"], "user-000000000042@example.org");
        let text = mail["text"].as_str().unwrap().len();
        assert!((750..950).contains(&text), "{text} bytes of text");
    }
}
