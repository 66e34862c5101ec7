//! Replies of next hops: a local server sends the bytes to the real clients.

use mailonce_core::{
    handoff::{
        reply::{ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail},
    },
    id::{EmailId, TeamId},
    outbound::content::EmailContent,
    ports::transport::Transport,
};
use mailonce_transport::{
    http::HttpTransportConfig,
    smtp::{RelayConfig, RelayTimeouts, SmtpTransport, TlsMode},
};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
    time::timeout,
};
use uuid::Uuid;

use super::{FuzzResult, InputOutcome, ensure_holds};
use crate::sink::http::{
    API_KEY, Vendor,
    vendor_clients::{FIXED_NOW, build_transport, sample_content},
};

const ID: Uuid = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001);
const MESSAGE_ID: &str = "<k1@mail.example.com>";
const MIME: &[u8] = b"Message-ID: <k1@mail.example.com>\r\nSubject: hello\r\n\r\nhello\r\n";
/// How long the server waits for a client that sends nothing.
const SERVER_WAIT: Duration = Duration::from_millis(25);
/// The timeout of a client. The server closes long before.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

/// A provider's reply to a mail and to a look-up.
pub fn run_http(vendor: Vendor, bytes: &[u8]) -> FuzzResult {
    block_on(async {
        let (at, server) = serve_script(bytes, &[bytes.len()], 2).await.map_err(|error| error.to_string())?;
        let setting = HttpTransportConfig {
            base_url: Some(format!("http://{at}")),
            timeout: CLIENT_TIMEOUT,
            ..HttpTransportConfig::new("out")
        };
        let transport = build_transport(vendor, setting, API_KEY).map_err(|error| error.to_string())?;
        let content = EmailContent::validate(sample_content()).map_err(|faults| format!("{faults:?}"))?;
        let mail = OutboundMail {
            id: EmailId(ID),
            content: &content,
            message_id: MESSAGE_ID,
            created_at: FIXED_NOW,
            key: ID,
            mime: Some(MIME),
        };
        let frozen = transport.freeze(&mail).map_err(|unfit| unfit.0)?;
        let reply = run_attempt(&*transport, sample_envelope(frozen)).await;
        // HTTP allows empty lines before a response.
        let text = bytes.trim_ascii_start();
        let begins = |class: u8| matches!(text, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', b' ', first, ..] if *first == class);
        // Any response may follow an interim one.
        let (success, early) = (begins(b'2'), begins(b'1'));
        check_reply(&reply, success || early)?;
        let found = transport.look_up(lookup_query()).await;
        server.abort();
        let is_found = matches!(found, LookUpResult::Found { .. });
        ensure_holds(!is_found || success || early || vendor == Vendor::UseSend, "found in an answer that is none")?;
        Ok(InputOutcome::accepted_if(reply.meaning == ReplyMeaning::Accepted))
    })
}

/// A relay's replies. A NUL ends the part that is sent before the client's next command.
pub fn run_smtp(bytes: &[u8]) -> FuzzResult {
    let turns: Vec<usize> = bytes.split_inclusive(|byte| *byte == 0).map(<[u8]>::len).collect();
    block_on(async {
        let (at, server) = serve_script(bytes, &turns, 1).await.map_err(|error| error.to_string())?;
        let mut config = RelayConfig::new("relay", "127.0.0.1", at.port());
        config.tls = TlsMode::None;
        config.timeouts = RelayTimeouts {
            greeting: CLIENT_TIMEOUT,
            command: CLIENT_TIMEOUT,
            body: CLIENT_TIMEOUT,
            final_reply: CLIENT_TIMEOUT,
            ..RelayTimeouts::default()
        };
        let smtp = SmtpTransport::new(config).map_err(|error| error.to_string())?;
        let reply = run_attempt(&smtp, sample_envelope(MIME.to_vec())).await;
        server.abort();
        let mut lines = bytes.split(|byte| matches!(byte, b'\n' | 0));
        check_reply(&reply, lines.any(|line| line.starts_with(b"2")))?;
        Ok(InputOutcome::accepted_if(reply.meaning == ReplyMeaning::Accepted))
    })
}

/// The rules for every reply: it is bounded and printable, and `accepted` needs a positive reply.
fn check_reply(reply: &TransportReply, may_accept: bool) -> Result<(), String> {
    ensure_holds(reply.text.chars().count() <= TransportReply::TEXT_CHARS, "a reply too long")?;
    ensure_holds(!reply.text.contains(char::is_control), "a reply that cannot be printed")?;
    ensure_holds(!reply.text.contains(API_KEY), "a reply that shows our key")?;
    ensure_holds(
        reply.remote_id.as_ref().is_none_or(|id| id.chars().count() <= TransportReply::TEXT_CHARS),
        "an id too long",
    )?;
    ensure_holds(reply.retry_after_ms.is_none_or(|pause| (0..=3_600_000).contains(&pause)), "a pause out of bounds")?;
    let taken = matches!(reply.meaning, ReplyMeaning::Accepted | ReplyMeaning::Repeated);
    ensure_holds(
        !taken || may_accept || reply.meaning == ReplyMeaning::Repeated,
        "accepted without having been said to be",
    )
}

async fn run_attempt(transport: &dyn Transport, envelope: FrozenEnvelope) -> TransportReply {
    match transport.prepare(envelope).await {
        Ok(ready) => ready.hand_over().await,
        Err(reply) => reply,
    }
}

fn sample_envelope(bytes: Vec<u8>) -> FrozenEnvelope {
    FrozenEnvelope {
        team: TeamId(ID),
        email: EmailId(ID),
        handoff: 0,
        attempt: 1,
        return_path: "bounce+1@out.test".into(),
        envelope_id: "e1".into(),
        recipients: vec!["ada@in.test".into()],
        key: ID,
        bytes: Arc::from(bytes),
    }
}

fn lookup_query() -> LookUpRequest {
    let recipients = vec!["ada@in.test".into()];
    LookUpRequest {
        email: EmailId(ID),
        handoff: 0,
        recipients,
        message_id: MESSAGE_ID.into(),
        key: ID,
        in_doubt_since: FIXED_NOW,
        now: FIXED_NOW,
    }
}

/// A server that sends the bytes in parts to a number of connections, and closes.
async fn serve_script(bytes: &[u8], turns: &[usize], connections: usize) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    let (bytes, turns, greets) = (bytes.to_vec(), turns.to_vec(), connections == 1);
    let server = tokio::spawn(async move {
        for _ in 0..connections {
            let Ok((mut socket, _)) = listener.accept().await else { return };
            let (mut at, mut heard) = (0, [0; 4096]);
            for (number, turn) in turns.iter().enumerate() {
                let listens = number > 0 || !greets;
                let text = async { if listens { socket.read(&mut heard).await } else { Ok(1) } };
                if !matches!(timeout(SERVER_WAIT, text).await, Ok(Ok(1..))) {
                    break;
                }
                let text: Vec<u8> = bytes[at..at + turn].iter().copied().filter(|byte| *byte != 0 || !greets).collect();
                if socket.write_all(&text).await.is_err() {
                    break;
                }
                at += turn;
            }
            // Reads what the client still sends, so that a reset does not drop our last bytes.
            socket.shutdown().await.ok();
            while matches!(timeout(SERVER_WAIT, socket.read(&mut heard)).await, Ok(Ok(1..))) {}
        }
    });
    Ok((at, server))
}

/// Runs a future on this thread.
fn block_on(work: impl Future<Output = FuzzResult>) -> FuzzResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async { timeout(CLIENT_TIMEOUT, work).await.unwrap_or_else(|_late| Err("it never ended".into())) })
}
