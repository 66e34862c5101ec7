//! The load generator against a minimal server.

use mailonce_sim::load::{
    BurstPlan, LoadDuration, LoadResponse, RequestGenerator, RequestTemplate, SteadyLoad, run_burst, run_steady,
};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Serves each connection on its own thread; `answer` builds the response from the body.
fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || serve_connection(stream, &*answer));
        }
    });
    at
}

fn serve_connection(mut stream: TcpStream, answer: &dyn Fn(&str) -> String) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body).ok()?;
        let answer = answer(std::str::from_utf8(&body).ok()?);
        stream.write_all(answer.as_bytes()).ok()?;
        if answer.contains("Connection: close") {
            return None;
        }
    }
}

fn http_response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Sends its number and records the responses.
struct RecordingRequests {
    template: RequestTemplate,
    bodies: Mutex<Vec<(u64, String)>>,
}

impl RecordingRequests {
    fn new() -> Arc<Self> {
        let template = RequestTemplate::post("/", &[], r#"{"n":"{n}"}"#);
        Arc::new(Self { template, bodies: Mutex::default() })
    }
}

impl RequestGenerator for RecordingRequests {
    fn write_request(&self, n: u64, out: &mut Vec<u8>) {
        self.template.write_numbered(n, out);
    }

    fn on_response(&self, n: u64, answer: &LoadResponse<'_>) {
        let body = String::from_utf8(answer.body.to_vec()).unwrap();
        self.bodies.lock().unwrap().push((n, body));
    }
}

fn count_load(to: SocketAddr, count: u64) -> SteadyLoad {
    let until = LoadDuration::Count { count, timeout: Duration::from_secs(10) };
    SteadyLoad { to, connections: 7, threads: 2, duration: until }
}

#[test]
fn a_count_sends_every_number_once_and_pairs_answers_with_requests() {
    let to = serve(|body| http_response("200 OK", body));
    let caller = RecordingRequests::new();
    let tally = run_steady(&count_load(to, 500), &caller).unwrap();
    assert_eq!((tally.status_count(200), tally.total(), tally.broken), (500, 500, 0), "{tally}");
    let mut bodies = caller.bodies.lock().unwrap().clone();
    bodies.sort_unstable();
    for (expected, (n, body)) in bodies.iter().enumerate() {
        assert_eq!((*n, body.as_str()), (expected as u64, format!(r#"{{"n":"{n:012}"}}"#).as_str()));
    }
}

#[test]
fn a_window_counts_what_ends_inside_it() {
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    let to = serve(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        http_response("202 Accepted", "{}")
    });
    let (warm_up, window) = (Duration::from_millis(100), Duration::from_millis(300));
    let plan = SteadyLoad { to, connections: 4, threads: 1, duration: LoadDuration::Window { warm_up, window } };
    let template = RequestTemplate::post("/", &[], "{}");
    let tally = run_steady(&plan, &Arc::new(move |n: u64, out: &mut Vec<u8>| template.write_numbered(n, out))).unwrap();
    assert!(tally.total() > 0 && tally.total() < seen.load(Ordering::Relaxed));
    assert_eq!((tally.status_count(202), tally.elapsed), (tally.total(), window));
    assert!(tally.latency.quantile(0.5) <= tally.latency.quantile(0.99));
}

#[test]
fn closed_connections_are_opened_again_and_chunks_are_read() {
    let to = serve(|body| {
        let (head, tail) = body.split_at(3);
        format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
             {:x}\r\n{head}\r\n{:x}\r\n{tail}\r\n0\r\n\r\n",
            head.len(),
            tail.len()
        )
    });
    let caller = RecordingRequests::new();
    let tally = run_steady(&count_load(to, 50), &caller).unwrap();
    assert_eq!((tally.status_count(200), tally.broken), (50, 0), "{tally}");
    assert!(caller.bodies.lock().unwrap().contains(&(49, r#"{"n":"000000000049"}"#.to_owned())));
}

#[test]
fn broken_exchanges_are_counted_with_their_reason() {
    let to = serve(|_| "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhel".to_owned());
    let tally = run_steady(&count_load(to, 10), &RecordingRequests::new()).unwrap();
    assert_eq!((tally.total(), tally.broken), (0, 10));
    assert!(tally.to_string().contains("closed before the answer ended"), "{tally}");
}

#[test]
fn a_burst_sends_one_request_on_each_connection() {
    let firsts = AtomicU64::new(0);
    let to = serve(move |body| {
        let first = firsts.fetch_add(1, Ordering::Relaxed) == 0;
        http_response(if first { "202 Accepted" } else { "200 OK" }, body)
    });
    let caller = RecordingRequests::new();
    let timeout = Duration::from_secs(10);
    let plan = BurstPlan { to, connections: 300, threads: 2, timeout };
    let tally = run_burst(&plan, &caller).unwrap();
    assert_eq!((tally.status_count(202), tally.status_count(200), tally.broken), (1, 299, 0), "{tally}");
    assert_eq!(tally.to_string(), "299×200 1×202");
    assert_eq!(caller.bodies.lock().unwrap().len(), 300);
}

#[test]
fn a_burst_without_a_server_fails() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let timeout = Duration::from_secs(1);
    let plan = BurstPlan { to: closed, connections: 3, threads: 2, timeout };
    assert!(run_burst(&plan, &RecordingRequests::new()).is_err());
}
