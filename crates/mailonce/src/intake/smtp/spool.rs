//! The spool: keeps large mails on disk while they are received, so that a slow sender holds disk space instead of
//! memory.
//!
//! Each mail has an unlinked file, which the kernel removes when it is closed, also when the process is killed. Files
//! are written and read on threads for blocking work, never on those of connections.

use std::{
    fmt,
    fs::{File, Permissions},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::Arc,
};
use tokio::sync::Semaphore;

use crate::byte_budget::ByteLease;

/// Files written or read at the same time. A slow disk must not use up the blocking threads that also read the ledger.
const MAX_CONCURRENT_FILES: usize = 16;

/// Creates the files of the spool.
pub trait SpoolFiles: fmt::Debug + Send + Sync {
    /// Creates an empty private file for writing and reading.
    fn create(&self) -> io::Result<File>;
}

/// Files in a directory, of mode 600 and unlinked before anything is written to them.
#[derive(Clone, Debug)]
pub struct SpoolDir(pub PathBuf);

impl SpoolFiles for SpoolDir {
    fn create(&self) -> io::Result<File> {
        let file = tempfile::tempfile_in(&self.0)?;
        // `tempfile` leaves the mode to the umask.
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file)
    }
}

/// The spool of a listener.
#[derive(Debug)]
pub(super) struct Spool {
    files: Arc<dyn SpoolFiles>,
    workers: Arc<Semaphore>,
}

impl Spool {
    pub(super) fn new(files: Arc<dyn SpoolFiles>) -> Self {
        Self { files, workers: Arc::new(Semaphore::new(MAX_CONCURRENT_FILES)) }
    }

    /// Creates the file of a mail. The lease accounts for the bytes in it.
    pub(super) async fn create_mail(&self, lease: ByteLease) -> io::Result<SpooledMail> {
        let files = Arc::clone(&self.files);
        let file = self.run(move || files.create()).await?;
        Ok(SpooledMail { file, octets: 0, lease })
    }

    /// Appends bytes to a mail.
    pub(super) async fn append(
        &self,
        mail: SpooledMail,
        bytes: impl AsRef<[u8]> + Send + 'static,
    ) -> io::Result<SpooledMail> {
        let SpooledMail { mut file, octets, lease } = mail;
        let added = bytes.as_ref().len();
        let file = self.run(move || file.write_all(bytes.as_ref()).map(|()| file)).await?;
        Ok(SpooledMail { file, octets: octets + added, lease })
    }

    /// Reads a mail back and removes it from the spool.
    pub(super) async fn load(&self, mail: SpooledMail) -> io::Result<Vec<u8>> {
        let SpooledMail { mut file, octets, lease } = mail;
        let read = move || {
            let mut bytes = Vec::with_capacity(octets);
            file.rewind()?;
            file.take(octets as u64).read_to_end(&mut bytes)?;
            if bytes.len() == octets { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        };
        let bytes = self.run(read).await;
        drop(lease);
        bytes
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let worker = Arc::clone(&self.workers).acquire_owned().await.map_err(io::Error::other)?;
        tokio::task::spawn_blocking(move || {
            let done = work();
            drop(worker);
            done
        })
        .await
        .map_err(io::Error::other)?
    }
}

/// A mail in the spool.
#[derive(Debug)]
pub(super) struct SpooledMail {
    file: File,
    octets: usize,
    /// The disk space that the mail holds.
    pub(super) lease: ByteLease,
}

impl SpooledMail {
    pub(super) fn octets(&self) -> usize {
        self.octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_budget::{self, ByteBudget};
    use std::os::unix::fs::MetadataExt as _;

    fn lease() -> ByteLease {
        ByteLease::new(ByteBudget { total: byte_budget::semaphore_for(1024), share: None })
    }

    #[tokio::test]
    async fn a_mail_is_read_as_it_was_written_from_a_file_that_nobody_sees() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(Arc::new(SpoolDir(folder.path().to_owned())));
        let mut mail = spool.create_mail(lease()).await.unwrap();
        mail = spool.append(mail, b"one ".to_vec()).await.unwrap();
        mail = spool.append(mail, b"mail".to_vec()).await.unwrap();
        let metadata = mail.file.metadata().unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.nlink()), (0o600, 0));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(mail.octets(), 8);
        assert_eq!(spool.load(mail).await.unwrap(), b"one mail");
    }

    #[tokio::test]
    async fn a_file_that_lost_its_end_is_an_error_and_no_shorter_mail() {
        let spool = Spool::new(Arc::new(SpoolDir(std::env::temp_dir())));
        let mail = spool.create_mail(lease()).await.unwrap();
        let mail = spool.append(mail, b"one mail".to_vec()).await.unwrap();
        mail.file.set_len(3).unwrap();
        assert_eq!(spool.load(mail).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
