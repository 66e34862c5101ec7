//! A drainer that stands still in the middle of an answer: PostgreSQL ends its session, and its transaction with it.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
};

use crate::{
    cluster::Cluster,
    database::{TempDatabase, connect_client},
    rig::{Rig, ServerOptions, payload, wait_until},
};

/// Bytes of answers after which a connection stands still. Only the answer with a large row is longer.
const STALL_AFTER: usize = 1024 * 1024;

/// Stands between a drainer and PostgreSQL, and stops reading in the middle of a long answer. PostgreSQL sees what it sees
/// of a drainer that is suspended.
struct StallingProxy {
    /// The URL of the database through this proxy.
    url: String,
    is_resumed: watch::Sender<bool>,
}

impl StallingProxy {
    async fn start(database: &str) -> Self {
        let (before, rest) = database.split_once('@').unwrap();
        let (server, name) = rest.split_once('/').unwrap();
        let server = tokio::net::lookup_host(server).await.unwrap().next().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{before}@{}/{name}", listener.local_addr().unwrap());
        let (is_resumed, resumed) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.unwrap();
                // A fixed size: the kernel must not buffer the rest of the answer.
                socket.set_recv_buffer_size(64 * 1024).unwrap();
                let connected = socket.connect(server).await.unwrap();
                tokio::spawn(forward(client, connected, resumed.clone()));
            }
        });
        Self { url, is_resumed }
    }

    /// Forwards everything from now on. Connections that stood still are closed.
    fn resume(&self) {
        self.is_resumed.send_replace(true);
    }
}

async fn forward(client: TcpStream, server: TcpStream, mut resumed: watch::Receiver<bool>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    // A client that gives up does not end the connection to the server while that stands still.
    let requests = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let (mut buffer, mut forwarded) = (vec![0; 8 * 1024], 0);
    while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
        forwarded += count;
        if forwarded > STALL_AFTER && !*resumed.borrow() {
            let _closed = resumed.wait_for(|resumed| *resumed).await.is_err();
            break;
        }
        if to_client.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    requests.abort();
}

#[tokio::test]
async fn a_drainer_that_stands_still_while_it_reads_a_lease_loses_its_session() {
    let rig = Rig::installed().await;
    let proxy = StallingProxy::start(&rig.database.url).await;
    let server = rig.start(&ServerOptions { drain_url: Some(&proxy.url), ..ServerOptions::default() }).await;
    rig.order("before", None).await;
    rig.wait_for_count("done", 1).await;
    // More than the buffers of a connection can hold.
    let large = "SELECT mailonce_outbox.claim('large', to_jsonb(repeat('x', 16 * 1024 * 1024)))";
    rig.sql.batch_execute(large).await.unwrap();

    let count = async |condition: &str| {
        let sessions =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        rig.sql.query_one(&format!("{sessions} AND {condition}"), &[]).await.unwrap().get::<_, i64>(0)
    };
    let holds_back = "backend_xmin IS NOT NULL AND wait_event = 'ClientWrite'";
    wait_until("PostgreSQL waits for the drainer", async || count(holds_back).await == 1).await;
    wait_until("PostgreSQL ends the session", async || count("backend_xmin IS NOT NULL").await == 0).await;
    let attempts = "SELECT attempts FROM mailonce_outbox.rows WHERE state = 'pending'";
    assert_eq!(rig.sql.query_one(attempts, &[]).await.unwrap().get::<_, i32>(0), 0, "the lease was rolled back");

    proxy.resume();
    rig.wait_for_count("done", 2).await;
    let claims = server.get("/v1/claims").await;
    assert_eq!((&claims["data"][0]["key"], claims["data"].as_array().unwrap().len()), (&"large".into(), 1));
    server.terminate().await;
}

/// Leases as many rows as PostgreSQL returns at once.
const LEASE: &str = "SELECT id FROM mailonce_outbox.lease('x', 200, 60000, 5)";

impl Rig {
    /// Inserts 20 rows of 100 KB.
    async fn insert_large_rows(&self) {
        let mut order = payload("large");
        order["text"] = "x".repeat(100_000).into();
        let send = "SELECT mailonce_outbox.send($1::text::jsonb) FROM generate_series(1, 20)";
        self.sql.execute(send, &[&order.to_string()]).await.unwrap();
    }
}

#[tokio::test]
async fn a_lease_returns_about_one_mebibyte() {
    let rig = Rig::installed().await;
    rig.insert_large_rows().await;
    for count in [11, 9, 0] {
        assert_eq!(rig.sql.query(LEASE, &[]).await.unwrap().len(), count);
    }
}

#[tokio::test]
async fn a_lease_over_a_unix_socket_fits_into_its_buffer() {
    let cluster = Cluster::start();
    let rig = Rig::on(TempDatabase::create_on(cluster.url()).await).await;
    rig.outbox(&["install"]).await.expect_exit(0);
    rig.insert_large_rows().await;
    let local = connect_client(&cluster.socket_url(&rig.database.name)).await;
    for _ in 0..2 {
        assert_eq!(local.query(LEASE, &[]).await.unwrap().len(), 1);
    }
    assert_eq!(rig.sql.query(LEASE, &[]).await.unwrap().len(), 11);
}
