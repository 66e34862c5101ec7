//! The seeds: well-formed inputs that reach deep into the parsers.

use serde_json::{Value, json};

/// Our id as providers return it.
const OUR_EMAIL_ID: &str = "01930a7c-5e1b-7cc0-8f3a-0123456789ab";

fn to_seeds(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn json_seeds(values: Vec<Value>) -> Vec<Vec<u8>> {
    values.iter().map(|value| value.to_string().into_bytes()).collect()
}

/// Keys.
pub fn keys() -> Vec<Vec<u8>> {
    to_seeds(&["order-4821", "\"order 4821\"", "\"a \\\"quoted\\\" \\\\ key\"", " spaced ", &"k".repeat(256)])
}

/// Ids.
pub fn ids() -> Vec<Vec<u8>> {
    to_seeds(&[
        OUR_EMAIL_ID,
        "01930A7C5E1B7CC08F3A0123456789AB",
        "{01930a7c-5e1b-7cc0-8f3a-0123456789ab}",
        "urn:uuid:0",
    ])
}

/// Cursors.
pub fn cursors() -> Vec<Vec<u8>> {
    to_seeds(&["0", "3-42", "4294967295-18446744073709551615", "00-00"])
}

/// Durations, instants and retention times.
pub fn spans() -> Vec<Vec<u8>> {
    to_seeds(&[
        "90s",
        "15m",
        "400d",
        "2w",
        "250ms",
        "transactional",
        "notification",
        "2026-11-15T10:00:00Z",
        "2026-11-15T12:00:00.123456789+02:00",
        "-009999-01-01T00:00:00Z",
        "in 5 minutes",
        "in an hour",
        "in 4294967295 days",
    ])
}

/// Addresses.
pub fn addresses() -> Vec<Vec<u8>> {
    to_seeds(&[
        "user@example.com",
        "Name <user@example.com>",
        "\"Lovelace, \\\"Ada\\\"\" <Ada.Lovelace+tag@Example.COM>",
        "üser@bücher.example",
        "a@xn--bcher-kva.example",
        "!#$%&'*+-/=?^_`{|}~@x.example.",
    ])
}

/// Intents.
pub fn intents() -> Vec<Vec<u8>> {
    json_seeds(vec![
        json!({"type": "order.confirmation", "entity": "order_4821"}),
        json!({"type": "digest", "entity": "ü\u{2028}\"\\", "version": 4_294_967_295_u32, "period": "2026-W46"}),
    ])
}

/// Digests.
pub fn digests() -> Vec<Vec<u8>> {
    vec![vec![1; 33], vec![1; 33 + 9 * 3], vec![2; 33 + 5]]
}

/// Received mails.
pub fn mails() -> Vec<Vec<u8>> {
    to_seeds(&[
        concat!(
            "From: =?utf-8?b?w7w=?= <a@x.example>\r\nTo: G: b@x.example, c@x.example;\r\n",
            "Subject: Re: [list] =?iso-8859-1?q?=FC?= code 482913\r\nDate: Sun, 15 Nov 2026 10:00:00 +0200\r\n",
            "Message-ID: <a@b>\r\nReferences: <c@d> <e@f>\r\nIn-Reply-To: <e@f>\r\nAuto-Submitted: no\r\n\r\n",
            "Your code is 482 913.\r\nhttps://x.example/verify?token=a1b2c3d4e5\r\n\r\n",
            "On 1 Jan 2026, A wrote:\r\n> old\r\n-- \r\nsig\r\n"
        ),
        concat!(
            "From: a@x.example\r\nContent-Type: multipart/mixed; boundary=\"o\"\r\n\r\n--o\r\n",
            "Content-Type: multipart/alternative; boundary=i\r\n\r\n--i\r\n",
            "Content-Type: text/plain; charset=gb2312\r\nContent-Transfer-Encoding: base64\r\n\r\nxOO6ww==\r\n--i\r\n",
            "Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n",
            "<p style=3D'display:none'>x</p><a href=3D'https://1.2.3.4/'>Verify</a> Code: <b>48=\r\n2913</b>\r\n--i--\r\n",
            "--o\r\nContent-Type: application/pdf; name*=utf-8''..%2Fx.pdf\r\n",
            "Content-Disposition: attachment; filename*0=\"../\"; filename*1=x\r\nContent-Transfer-Encoding: base64\r\n\r\n",
            "aGVsbG8=\r\n--o\r\nContent-Type: message/rfc822\r\n\r\nSubject: in\r\n\r\nin\r\n--o--\r\n"
        ),
        concat!(
            "Return-Path: <>\r\nFrom: MAILER-DAEMON@x.example\r\nAuto-Submitted: auto-replied\r\n",
            "Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\nno\r\n--b\r\n",
            "Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; x\r\n",
            "Original-Envelope-Id: mo1-agj2dmwd2r7f7ctlbqos4p2klmaagaaaaad2ljnfuws2ljnfuws2ljnf\r\n\r\n",
            "Final-Recipient: rfc822; a@x.example\r\nAction: failed\r\nStatus: 5.1.1\r\n",
            "Diagnostic-Code: smtp; 550 no\r\n\r\n--b\r\nContent-Type: text/rfc822-headers\r\n\r\n",
            "Message-ID: <a@b>\r\nX-Mailonce-Id: 01930a7c-5e1b-7cc0-8f3a-0123456789ab\r\n--b--\r\n"
        ),
        concat!(
            "From: MAILER-DAEMON@x.example\r\nSubject: failure notice\r\n\r\n",
            "Hi. This is the qmail-send program at x.example.\r\n\r\n<a@y.example>:\r\n",
            "192.0.2.1 does not like recipient.\r\nRemote host said: 550 5.1.1 no\r\n\r\n",
            "--- Below this line is a copy of the message.\r\n\r\nMessage-ID: <a@b>\r\n\r\nhi\r\n"
        ),
    ])
}

/// Templates.
pub fn templates() -> Vec<Vec<u8>> {
    to_seeds(&[
        "Hello {{ name|upper }}, {{ n|int + 1 }}",
        "{% for item in l %}{{ loop.index }}{% if item is mapping %}{{ item.k }}{% else %}{{ item }}{% endif %}{% endfor %}",
        "{% set x = name|replace('a', big)|truncate(20) %}{{ x }}{% raw %}{{ y }}{% endraw %}{# #}",
        "{{ 'a' if n in [1, 7] else missing|default('-') }}{{ l|first }}{{ l|length }}",
    ])
}

/// HTML.
pub fn pages() -> Vec<Vec<u8>> {
    to_seeds(&[
        "<html><head><style>.a{display:none}</style></head><body><p class=a>hidden</p><p>Code <b>482913</b></p></body>",
        "<table><tr><td style=\"color:#fff;background:white\">x</td><td><a href='https://x.example/?t=1&amp;u=2'>y</a>",
        "<div style='font-size:0'>a<div>b</div></div><!-- c --><img src=x width=1 height=1><br>&#x200b;&nbsp;&copy;",
        "<ul><li>1<li>2</ul><p hidden>z<script>alert(1)</script><span aria-hidden=true>q</span>",
    ])
}

/// Links, and mails with many of them.
pub fn links() -> Vec<Vec<u8>> {
    let mut links = to_seeds(&[
        "https://allowed.example/verify?token=abc",
        "http://0x7f.1/",
        "https://user:pass@x.example@evil.example/",
        "https://xn--pple-43d.example/%2e%2e//",
        "https://t.co/?url=https%3A%2F%2Fevil.example",
        "javascript:alert(1)",
        "Subject: x\r\n\r\nhttps://x.example/a and <https://allowed.example/b> and http://[::ffff:127.0.0.1]/\r\n",
    ]);
    links.extend(mails());
    links
}

/// Return paths and envelope ids.
pub fn return_paths() -> Vec<Vec<u8>> {
    to_seeds(&[
        "bounce+agj2dmwd2r7f7ctlbqos4p2klmaagaaaaad2ljnfuws2ljnfuws2ljnf@out.example",
        "mo1-agj2dmwd2r7f7ctlbqos4p2klmaagaaaaad2ljnfuws2ljnfuws2ljnf",
        "BOUNCE+AGJ2DMWD2R7F7CTLBQOS4P2KLMAAGAAAAAD2LJNFUWS2LJNFUWS2LJNF@out.example",
    ])
}

/// Webhooks of every provider.
pub fn hooks() -> Vec<Vec<u8>> {
    let ses = json!({"notificationType": "Bounce", "bounce": {"bounceType": "Permanent", "bouncedRecipients":
        [{"emailAddress": "a@x.example", "status": "5.1.1", "diagnosticCode": "smtp; 550"}], "timestamp":
        "2026-11-15T10:00:00.000Z", "feedbackId": "f"}, "mail": {"messageId": "m", "tags": {"mailonce": [OUR_EMAIL_ID]}}});
    json_seeds(vec![
        json!({"RecordType": "Bounce", "ID": 42, "Type": "HardBounce", "TypeCode": 1, "MessageID": "m",
            "Email": "a@x.example", "BouncedAt": "2026-11-15T10:00:00Z", "Metadata": {"mailonce": OUR_EMAIL_ID}, "Details": "no"}),
        json!({"signature": {"timestamp": "1794736800", "token": "t", "signature": "s"}, "event-data": {"event": "failed",
            "id": "e", "severity": "permanent", "timestamp": 1_794_736_800.5, "recipient": "a@x.example",
            "message": {"headers": {"message-id": "m"}}, "user-variables": {"mailonce": OUR_EMAIL_ID},
            "delivery-status": {"code": 550, "message": "no"}}}),
        json!([{"event": "bounce", "sg_event_id": "e", "sg_message_id": "m.filter", "email": "a@x.example",
            "timestamp": 1_794_736_800, "type": "blocked", "reason": "550", "mailonce": OUR_EMAIL_ID},
            {"event": "delivered", "sg_event_id": "f", "email": "b@x.example", "timestamp": 1_794_736_801}]),
        json!({"Type": "Notification", "MessageId": "n", "TopicArn": "arn:aws:sns:eu-west-1:123456789012:mail",
            "Message": ses.to_string(), "Timestamp": "2026-11-15T10:00:00.000Z", "SignatureVersion": "2", "Signature":
            "AAAA", "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0.pem"}),
        json!({"type": "email.bounced", "created_at": "2026-11-15T10:00:00Z", "data": {"email_id": "m", "to":
            ["a@x.example"], "bounce": {"type": "Permanent", "message": "no"}, "tags": {"mailonce": OUR_EMAIL_ID}}}),
        json!({"id": "evt", "type": "email.bounced", "createdAt": "2026-11-15T10:00:00Z", "data": {"id": "m", "to":
            ["a@x.example"], "status": "BOUNCED", "occurredAt": "2026-11-15T10:00:00Z"}}),
        json!({"event": "hard_bounce", "email": "a@x.example", "id": 1, "message-id": "<m@x>", "ts_epoch":
            1_794_736_800_123_i64, "X-Mailin-custom": format!("mailonce={OUR_EMAIL_ID}"), "reason": "550"}),
    ])
}

/// A relay's side of a session, with a NUL after each part.
pub fn smtp() -> Vec<Vec<u8>> {
    to_seeds(&[
        "220 hi\r\n\x00250-relay\r\n250-SIZE 1000000\r\n250-DSN\r\n250 8BITMIME\r\n\x00250 ok\r\n\x00250 ok\r\n\x00354 go\r\n\x00250 2.0.0 Ok: queued as 4F2A1\r\n\x00221 bye\r\n",
        "220 hi\r\n\x00250-relay\r\n250-PIPELINING\r\n250 SMTPUTF8\r\n\x00250 ok\r\n250 ok\r\n354 go\r\n\x00250 OK id=1rXyZ\r\n",
        "220 hi\r\n\x00250 relay\r\n\x00250 ok\r\n\x00550-5.1.1 no\r\n550 5.1.1 such user\r\n\x00",
        "220 hi\r\n\x00502 no\r\n\x00250 hello\r\n\x00250 ok\r\n\x00250 ok\r\n\x00354 go\r\n\x00451 4.7.1 later\r\n",
        "554 go away\r\n",
    ])
}

/// Replies of every provider.
pub fn answers() -> Vec<Vec<u8>> {
    let bodies = [
        (200, json!({"id": "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"})),
        (
            200,
            json!({"To": "a@x.example", "SubmittedAt": "2026-11-15T10:00:00Z", "MessageID": "m", "ErrorCode": 0, "Message": "OK"}),
        ),
        (200, json!({"id": "<20261115@x.example>", "message": "Queued. Thank you."})),
        (200, json!({"MessageId": "0102018c5e1f-aaaa", "emailId": "m", "messageId": "<m@x>", "data": {"id": "m"}})),
        (
            200,
            json!({"TotalCount": 1, "Messages": [{"MessageID": "m", "Status": "Sent", "Metadata": {"mailonce": OUR_EMAIL_ID}}]}),
        ),
        (200, json!({"items": [{"event": "accepted", "message": {"headers": {"message-id": "k1@mail.example.com"}}}]})),
        (409, json!({"name": "invalid_idempotent_request", "message": "same key, other body", "statusCode": 409})),
        (
            400,
            json!({"code": "duplicate_parameter", "message": "seen before", "errors": [{"message": "no", "field": null}]}),
        ),
        (429, json!({"message": "slow down"})),
        (503, json!({"__type": "ServiceUnavailable", "message": "later"})),
    ];
    let answer = |(status, body): &(u16, Value)| {
        let body = body.to_string();
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nRetry-After: 2\r\n");
        format!("{head}X-Message-Id: m\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    };
    let mut answers: Vec<Vec<u8>> = bodies.iter().map(answer).collect();
    answers.extend(to_seeds(&[
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{\"id\":\"m\"\r\n1\r\n}\r\n0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nX-Message-Id: m\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/\r\n\r\n",
    ]));
    answers
}

/// Messages of MCP clients, in both protocol versions.
pub fn messages() -> Vec<Vec<u8>> {
    let stateless = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}}, "claudecode/toolUseId": "toolu_1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"});
    json_seeds(vec![
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
            "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "send_email", "arguments": {"to":
            "user@example.com", "subject": "s", "text": "t", "type": "t", "entity": "e"}, "_meta": stateless}}),
        json!({"jsonrpc": "2.0", "id": -7, "method": "tools/call", "params": {"name": "ask_human", "arguments": null,
            "inputResponses": {"decision": {"action": "accept"}}, "_meta": {"dev.mailonce/call-id": "ü"}}}),
        json!({"jsonrpc": "2.0", "id": 18_446_744_073_709_551_615_u64, "method": "server/discover", "params": null}),
    ])
}

/// Bodies of `POST /v1/emails`.
pub fn bodies() -> Vec<Vec<u8>> {
    json_seeds(vec![
        json!({"from": "Agent <agent@example.com>", "to": "user@example.com", "subject": "Hi", "text": "hello"}),
        json!({"from": "agent@example.com", "to": ["a@x.example", "B <b@x.example>"], "cc": [], "bcc": null, "reply_to":
            ["c@x.example"], "subject": "ü", "html": "<p>x</p>", "headers": {"X-Run": "42"}, "attachments": [{"filename":
            "a.txt", "content": "YWJj", "content_type": "text/plain", "content_id": "i"}], "tags": ["t", {"name": "n",
            "value": "v"}], "metadata": {"a": 1, "b": true, "c": "x", "d": 1.5, "e": null}, "scheduled_at": "in 5 minutes",
            "intent": {"type": "t", "entity": "e", "version": 2, "period": "p"}, "ttl": {"class": "scheduled",
            "interval": "7d"}, "on_mismatch": "first_wins", "on_unknown": "resend", "transport": "relay",
            "distinct_token": "d"}),
    ])
}

/// Calls of the dialects: a line with method and path, and the body.
pub fn calls() -> Vec<Vec<u8>> {
    const INBOX: &str = "/compat/agentmail/v0/inboxes/agent@agents.test";
    let call = |line: &str, body: serde_json::Value| [line.as_bytes(), b"\n", body.to_string().as_bytes()].concat();
    let mail = json!({"from": "agent@agents.test", "to": ["a@x.example"], "subject": "Hi", "text": "x", "html": null,
        "headers": {"X-Run": "42"}, "attachments": [{"filename": "a", "content": [97, 98]}, {"content": {"type":
        "Buffer", "data": [1]}}], "tags": [{"name": "n", "value": "v"}], "scheduled_at": "in 1 hour"});
    let later = json!({"scheduledAt": "2027-01-01T00:00:00Z", "from": "a@b.example", "to": "c@d.example", "subject":
        "s", "text": "t", "replyTo": ["r@d.example"]});
    let forward = json!({"to": "a@x.example", "cc": [], "subject": "Hi", "text": "x", "labels": ["l"], "attachments":
        [{"content": "YWJj", "content_type": "text/plain"}], "headers": {"X-A": "b"}, "track_opens": false});
    vec![
        call("POST /compat/resend/emails", mail.clone()),
        call("POST /compat/resend/emails/batch", json!([mail])),
        call("GET /compat/resend/emails?limit=2&after=01a1e06b-df5a-7000-ba6a-b6aec495c66e", json!({})),
        call("GET /compat/resend/inboxes/agent@agents.test/threads?folders=inbox,sent&read=false&limit=3", json!({})),
        call("POST /compat/resend/webhooks", json!({"endpoint": "https://a.example/", "events": ["email.sent"]})),
        call("POST /compat/resend/api-keys", json!({"name": "k", "permission": "sending_access"})),
        call("POST /compat/resend/domains", json!({"name": "d.example"})),
        call("POST /compat/usesend/api/v1/emails", later.clone()),
        call("POST /compat/usesend/api/v1/emails/batch", json!([later])),
        call(
            "GET /compat/usesend/api/v1/emails?page=2&limit=3&startDate=2026-01-01T00:00:00Z&endDate=2027-01-01T00:00:00Z",
            json!({}),
        ),
        call(&format!("POST {INBOX}/messages/send"), forward.clone()),
        call(
            &format!(
                "GET {INBOX}/messages?labels=%5B%22unread%22%5D&before=2027-01-01T00:00:00Z&limit=3&ascending=true"
            ),
            json!({}),
        ),
        call(&format!("GET {INBOX}/messages/search?q=hello+ann"), json!({})),
        call(&format!("POST {INBOX}/messages/%3C1@x.test%3E/reply"), json!({"text": "x", "reply_all": true})),
        call(&format!("POST {INBOX}/messages/%3C1@x.test%3E/forward"), forward),
        call(
            &format!("PATCH {INBOX}/messages/%3C1@x.test%3E"),
            json!({"add_labels": "a", "remove_labels": ["unread"]}),
        ),
        call(&format!("POST {INBOX}/messages/batch-get"), json!({"message_ids": ["<1@x.test>"]})),
        call(
            &format!("POST {INBOX}/drafts"),
            json!({"to": "a@x.example", "text": "x", "send_at": "2027-01-01T00:00:00Z", "client_id": "c"}),
        ),
        call(&format!("GET {INBOX}/drafts?labels=a&after=2026-01-01T00:00:00Z"), json!({})),
        call("GET /compat/agentmail/v0/threads?senders=ann&page_token=0-0-0", json!({})),
        call("POST /compat/agentmail/v0/inboxes", json!({"username": "u", "metadata": {"a": 1}, "client_id": "c"})),
        call("POST /compat/agentmail/v0/lists/send/block", json!({"entry": "x.example", "reason": "r"})),
        call(
            "POST /compat/agentmail/v0/webhooks",
            json!({"url": "https://a.example/", "event_types": ["message.sent"], "headers": {"X-A": "b"}}),
        ),
    ]
}
