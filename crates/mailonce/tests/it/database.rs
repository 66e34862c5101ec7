//! A temporary PostgreSQL database for one test.

use std::sync::atomic::{AtomicU64, Ordering};
use tokio_postgres::{Client, NoTls};

/// A temporary database, dropped at the end of the test.
pub(crate) struct TempDatabase {
    pub(crate) admin_url: String,
    pub(crate) name: String,
    pub(crate) url: String,
}

impl TempDatabase {
    /// Creates one on the server that `MAILONCE_TEST_POSTGRES` names. A missing variable fails the test.
    pub(crate) async fn create() -> Self {
        let admin = std::env::var("MAILONCE_TEST_POSTGRES")
            .expect("MAILONCE_TEST_POSTGRES must name the test server: postgres://user@host:port/db");
        Self::create_on(admin).await
    }

    /// Creates one on another server, by the URL of its superuser.
    pub(crate) async fn create_on(admin: String) -> Self {
        Self::create_from(admin, "template1").await
    }

    /// Creates a copy of another database of the server. Nobody may be connected to that one.
    pub(crate) async fn create_from(admin: String, template: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("mailonce_it_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let base = admin.rsplit_once('/').expect("the URL ends with the name of a database").0;
        let url = format!("{base}/{name}");
        let create = format!("CREATE DATABASE {name} TEMPLATE {template}");
        connect_client(&admin).await.batch_execute(&create).await.unwrap();
        Self { admin_url: admin, name, url }
    }
}

impl Drop for TempDatabase {
    fn drop(&mut self) {
        let (admin, name) = (self.admin_url.clone(), self.name.clone());
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                connect_client(&admin)
                    .await
                    .batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)"))
                    .await
                    .unwrap();
            });
        });
        dropped.join().ok();
    }
}

pub(crate) async fn connect_client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
