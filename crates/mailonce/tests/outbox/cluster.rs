//! A PostgreSQL server of one test, which the test may crash or restore from a backup. `MAILONCE_PG_BIN` is the folder of its programs.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// A running server. It is stopped and removed when dropped.
pub(crate) struct Cluster {
    folder: TempDir,
    bin: PathBuf,
    port: u16,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let bin =
            std::env::var_os("MAILONCE_PG_BIN").expect("MAILONCE_PG_BIN: run `. scripts/services; services_install`");
        let folder = tempfile::Builder::new().prefix("mailonce-cluster").tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            let user = Command::new("id").args(["-u", "postgres"]).output().unwrap();
            let user = String::from_utf8(user.stdout).unwrap().trim().parse().unwrap();
            std::os::unix::fs::chown(folder.path(), Some(user), None).unwrap();
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cluster = Self { folder, bin: bin.into(), port };
        cluster.run("initdb", &["-U", "mailonce", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        cluster.start_again();
        cluster
    }

    /// The URL of its superuser.
    pub(crate) fn url(&self) -> String {
        format!("postgres://mailonce@127.0.0.1:{}/postgres", self.port)
    }

    /// The URL of one of its databases over its Unix socket.
    pub(crate) fn socket_url(&self, database: &str) -> String {
        let folder = self.folder.path().to_str().unwrap().replace('/', "%2F");
        format!("postgres://mailonce@{folder}:{}/{database}", self.port)
    }

    /// Ends it without a checkpoint, as a crash does, and starts it again.
    pub(crate) fn crash_and_restart(&self) {
        self.run("pg_ctl", &["-m", "immediate", "-w", "stop"]);
        self.start_again();
    }

    /// Makes a backup of its data, and starts it again.
    pub(crate) fn back_up(&self) {
        self.run("pg_ctl", &["-m", "fast", "-w", "stop"]);
        self.copy("data", "backup");
        self.start_again();
    }

    /// Ends it and restores its backup, which begins a new timeline.
    pub(crate) fn restore(&self) {
        self.run("pg_ctl", &["-m", "immediate", "-w", "stop"]);
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        self.copy("backup", "data");
        // Any file with this name asks for a recovery. PostgreSQL must own it.
        self.copy("data/PG_VERSION", "data/recovery.signal");
        self.start_again();
    }

    fn copy(&self, from: &str, to: &str) {
        let status = Command::new("cp").arg("-a").args([from, to]).current_dir(self.folder.path()).status().unwrap();
        assert!(status.success(), "{from} is not copied to {to}");
    }

    fn start_again(&self) {
        let folder = self.folder.path().display();
        // A recovery needs a command that fetches archived files. There are none.
        let recovery = "-c restore_command=/bin/false";
        let options =
            format!("-p {} -k {folder} -c listen_addresses=127.0.0.1 -c max_connections=300 {recovery}", self.port);
        let log = self.folder.path().join("log");
        self.run("pg_ctl", &["-l", log.to_str().unwrap(), "-o", &options, "-w", "-t", "60", "start"]);
    }

    /// Runs one of its programs on its data. PostgreSQL refuses to run as root.
    fn run(&self, program: &str, args: &[&str]) {
        let path = self.bin.join(program);
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.arg("-D").arg(self.folder.path().join("data")).args(args).current_dir("/");
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(status.success(), "{program} {args:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.run("pg_ctl", &["-m", "immediate", "-w", "stop"]);
            return;
        }
        let stop = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.run("pg_ctl", &["-m", "immediate", "-w", "stop"])
        }));
        drop(stop);
    }
}
