//! Replies that a sink never gives: rare vendor errors, and look-ups that ignored our filter.

use mailonce_core::handoff::{
    reply::{ReplyMeaning, TransportReply},
    transport_request::LookUpResult,
};
use mailonce_sim::sink::http::Vendor;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::fixtures::{EMAIL, lookup_query, run_attempt, vendor_transport};

/// Answers one request with these headers and this body, whatever it is.
async fn serve_one_response(listener: &TcpListener, status: u16, header: &str, body: &str) {
    let (mut socket, _) = listener.accept().await.unwrap();
    let (mut heard, mut chunk) = (Vec::new(), [0; 4096]);
    // The request is read completely; a reply before its end could reset the connection.
    let mut wanted = usize::MAX;
    while heard.len() < wanted {
        let count = socket.read(&mut chunk).await.unwrap();
        assert!(count > 0, "the request broke off");
        heard.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&heard);
        if let Some(end) = text.find("\r\n\r\n") {
            let head = text[..end].to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            wanted = end + 4 + length.unwrap_or(0);
        }
    }
    let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{header}\r\n{body}", body.len());
    socket.write_all(text.as_bytes()).await.unwrap();
}

async fn send_with_response(vendor: Vendor, status: u16, header: &str, body: &str) -> TransportReply {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = vendor_transport(vendor, &format!("http://{}", listener.local_addr().unwrap()));
    tokio::join!(run_attempt(&*transport, 1), serve_one_response(&listener, status, header, body)).0
}

async fn look_up_with_response(vendor: Vendor, status: u16, body: &str) -> LookUpResult {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = vendor_transport(vendor, &format!("http://{}", listener.local_addr().unwrap()));
    tokio::join!(transport.look_up(lookup_query()), serve_one_response(&listener, status, "", body)).0
}

#[tokio::test]
async fn rare_vendor_errors_are_understood() {
    use ReplyMeaning::{Accepted, Deferred, Fault, Mismatch, Refused, Unknown};
    let throttled = "x-amzn-errortype: TooManyRequestsException:http://internal.amazon.com/coral/\r\n";
    let paused = "x-amzn-errortype: SendingPausedException\r\n";
    let named = "x-message-id: abc\r\n";
    for (vendor, status, header, body, meaning) in [
        (Vendor::Resend, 201, "", r#"{"id":"1"}"#, Accepted),
        (Vendor::Resend, 200, "", r#"{"id":""}"#, Unknown),
        (Vendor::Resend, 200, "", r#"["id"]"#, Unknown),
        (Vendor::Resend, 409, "", r#"{"statusCode":409,"name":"resource_locked","message":"m"}"#, Unknown),
        (Vendor::Resend, 409, "", r#"{"statusCode":409,"name":"invalid_idempotent_request","message":"m"}"#, Mismatch),
        (Vendor::Resend, 403, "", r#"{"statusCode":403,"name":"validation_error","message":"m"}"#, Fault),
        (Vendor::Resend, 413, "", "<html>", Refused),
        (Vendor::Postmark, 200, "", r#"{"ErrorCode":406,"Message":"m","MessageID":"1"}"#, Unknown),
        (Vendor::Postmark, 422, "", r#"{"ErrorCode":406,"Message":"m"}"#, Refused),
        (Vendor::Postmark, 422, "", r#"{"ErrorCode":405,"Message":"m"}"#, Fault),
        (Vendor::Postmark, 503, "", "<html>", Unknown),
        (Vendor::SendGrid, 202, "", "", Unknown),
        (Vendor::SendGrid, 200, named, "", Unknown),
        (Vendor::SendGrid, 202, named, "", Accepted),
        (Vendor::Ses, 400, throttled, r#"{"message":"m"}"#, Deferred),
        (Vendor::Ses, 400, paused, r#"{"message":"m"}"#, Fault),
        (Vendor::Ses, 400, "", r#"{"message":"m"}"#, Refused),
        (Vendor::UseSend, 409, "", r#"{"error":{"code":"NOT_UNIQUE","message":"other"}}"#, Unknown),
        (Vendor::Brevo, 402, "", r#"{"code":"not_enough_credits","message":"m"}"#, Fault),
        (Vendor::Brevo, 202, "", r#"{"messageId":"<1@x>"}"#, Accepted),
        (Vendor::Mailgun, 200, "", r#"{"message":"Queued."}"#, Unknown),
        (Vendor::Mailgun, 404, "", r#"{"message":"Domain not found: x"}"#, Refused),
    ] {
        let reply = send_with_response(vendor, status, header, body).await;
        assert_eq!((reply.meaning, reply.code), (meaning, Some(status)), "{vendor:?} {status} {body}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_look_up_that_ignored_our_filter_is_no_proof() {
    let other = r#"{"TotalCount":1,"Messages":[{"MessageID":"1","Metadata":{"mailonce":"another"}}]}"#;
    assert_eq!(look_up_with_response(Vendor::Postmark, 200, other).await, LookUpResult::NotFound);
    let many = r#"{"TotalCount":900,"Messages":[{"MessageID":"1","Metadata":{}}]}"#;
    assert!(matches!(look_up_with_response(Vendor::Postmark, 200, many).await, LookUpResult::Unavailable(_)));
    let ours = format!(r#"{{"TotalCount":900,"Messages":[{{"MessageID":"1","Metadata":{{"mailonce":"{EMAIL}"}}}}]}}"#);
    assert!(matches!(look_up_with_response(Vendor::Postmark, 200, &ours).await, LookUpResult::Found { .. }));

    let event = |name: &str, id: &str| {
        format!(r#"{{"items":[{{"event":"{name}","message":{{"headers":{{"message-id":"{id}"}}}}}}]}}"#)
    };
    assert_eq!(
        look_up_with_response(Vendor::Mailgun, 200, &event("accepted", "another@x")).await,
        LookUpResult::NotFound
    );
    assert_eq!(
        look_up_with_response(Vendor::Mailgun, 200, &event("rejected", "k1@mail.example.com")).await,
        LookUpResult::NotFound
    );
    let yes = look_up_with_response(Vendor::Mailgun, 200, &event("failed", "k1@mail.example.com")).await;
    assert!(matches!(yes, LookUpResult::Found { .. }), "a mail that failed later was taken first: {yes:?}");

    let stranger = r#"{"messages":[{"msg_id":"1","to_email":"stranger@example.net","status":"delivered"}]}"#;
    assert!(matches!(look_up_with_response(Vendor::SendGrid, 200, stranger).await, LookUpResult::Unavailable(_)));
    for vendor in [Vendor::Postmark, Vendor::Mailgun, Vendor::SendGrid, Vendor::UseSend] {
        for (status, body) in [(200, "<html>"), (200, ""), (500, "{}"), (429, "{}")] {
            let found = look_up_with_response(vendor, status, body).await;
            assert!(matches!(found, LookUpResult::Unavailable(_)), "{vendor:?} {status} {body}: {found:?}");
        }
    }
}

#[tokio::test]
async fn usesends_schema_errors_say_nothing_about_the_key() {
    let zod = r#"{"success":false,"error":{"issues":[],"name":"ZodError"}}"#;
    let length = r#"{"error":{"code":"BAD_REQUEST","message":"Invalid Idempotency-Key length"}}"#;
    let busy = r#"{"error":{"code":"NOT_UNIQUE","message":"Request with same Idempotency-Key is in progress."}}"#;
    for (status, body) in [(400, zod), (400, length), (409, busy), (200, r#"{"emailId":"1"}"#)] {
        let found = look_up_with_response(Vendor::UseSend, status, body).await;
        assert!(matches!(found, LookUpResult::Unavailable(_)), "{status} {body}: {found:?}");
    }
}
