//! Files and directories that only their owner can read: those in which `dev` keeps secrets, and data directories.
//!
//! A folder from elsewhere, such as a cloned repository, may contain a planted file of the same name. Version control
//! and archives create files that others can read, or links. Both are refused.

use anyhow::{Context as _, bail};
use rustix::{fs::OFlags, process::geteuid};
use std::{
    fs::{DirBuilder, File, Metadata, OpenOptions},
    io::{ErrorKind, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Reads a file that only this user can read. `None` if it does not exist.
pub(crate) fn read(path: &Path) -> anyhow::Result<Option<String>> {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).context("converting the open flags")?;
    let opened = OpenOptions::new().read(true).custom_flags(no_follow).open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if is_link(path) => {
            return Err(anyhow::Error::new(error).context(rejection_message(path, "it is a link")));
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let metadata = file.metadata().with_context(|| format!("reading {}", path.display()))?;
    if let Some(why) = exposure(&metadata) {
        bail!(rejection_message(path, why));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| format!("reading {}", path.display()))?;
    Ok(Some(text))
}

/// Why a file may have been written or read by others.
pub(crate) fn exposure(metadata: &Metadata) -> Option<&'static str> {
    if !metadata.is_file() {
        Some("it is not a regular file")
    } else if metadata.uid() != geteuid().as_raw() {
        Some("it belongs to another user")
    } else {
        (metadata.mode() & 0o077 != 0).then_some("others can read or write it")
    }
}

/// Creates a directory with mode 700. An existing directory stays as it is.
pub(crate) fn create_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only its owner can read. Replaces an existing file or link of that name.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    create_dir(folder).with_context(|| format!("creating {}", folder.display()))?;
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let written = create(&fresh, bytes).and_then(|()| std::fs::rename(&fresh, path));
    if written.is_err() {
        std::fs::remove_file(&fresh).ok();
    }
    written.with_context(|| format!("writing {}", path.display()))
}

fn create(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_symlink())
}

fn rejection_message(path: &Path, why: &str) -> String {
    format!("{} was not written by `mailonce dev`: {why}. Remove it if you do not know it", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_private_file_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/dev.key");
        assert_eq!(read(&path).unwrap(), None);
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_others_can_read_or_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("dev.key"), folder.path().join("link"));
        std::fs::write(&path, "planted").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("others can read"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&path, &link).unwrap();
        assert!(format!("{:#}", read(&link).unwrap_err()).contains("it is a link"));
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("precious"), folder.path().join("dev.json"));
        std::fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        write(&link, b"secret").unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
        assert_eq!(read(&link).unwrap().as_deref(), Some("secret"));
    }
}
