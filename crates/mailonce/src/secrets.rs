//! Reads the configured key encryption key (KEK): from a file, an environment variable or a command.

use anyhow::{Context as _, bail, ensure};
use mailonce_core::ports::store::{Result as StoreResult, StoreError};
use mailonce_engine::access::kek::{HOW_TO_MAKE, Kek};
use serde::Deserialize;
use std::{
    fmt,
    io::Read as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    time::timeout,
};

use crate::private_file;

/// How long a command may take to print the KEK.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes read from a file, and from each output stream of a command.
const READ_MAX: u64 = 4_096;
/// Characters of a command's stderr shown in an error.
const SHOWN_CHARS: usize = 500;

/// The section `[secrets]` of the configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretsFile {
    kek_file: Option<PathBuf>,
    kek_env: Option<String>,
    kek_command: Option<Vec<String>>,
    seal_bodies: Option<bool>,
}

/// How secrets are protected.
#[derive(Clone, Debug, Default)]
pub struct SecretsConfig {
    /// Where the KEK is. None: the install secret is stored in the ledger without encryption.
    pub kek: Option<KekSource>,
    /// Whether email bodies are encrypted in the ledger.
    pub seal_bodies: bool,
}

impl SecretsConfig {
    /// Validates the file section. Environment variables override it.
    pub(crate) fn load(file: SecretsFile, env: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let seal_bodies = match env("MAILONCE_SECRETS_SEAL_BODIES").as_deref() {
            None => file.seal_bodies.unwrap_or(false),
            Some("true") => true,
            Some("false") => false,
            Some(other) => bail!("MAILONCE_SECRETS_SEAL_BODIES is `{other}`; it must be `true` or `false`"),
        };
        let from_env = KekSource::one_of(
            env("MAILONCE_SECRETS_KEK_FILE").map(PathBuf::from),
            env("MAILONCE_SECRETS_KEK_ENV"),
            None,
        );
        let from_file = KekSource::one_of(file.kek_file, file.kek_env, file.kek_command);
        let kek = from_env.context("in the environment")?.or(from_file.context("in [secrets]")?);
        ensure!(
            kek.is_some() || !seal_bodies,
            "secrets.seal_bodies needs a key encryption key (KEK): set secrets.kek_file, kek_env or kek_command; \
             {HOW_TO_MAKE}"
        );
        Ok(Self { kek, seal_bodies })
    }

    /// Reads the KEK, if one is configured.
    pub async fn read_kek(&self) -> StoreResult<Option<Kek>> {
        let Some(source) = &self.kek else { return Ok(None) };
        source.read().await.map(Some).map_err(|error| StoreError::Locked(format!("{error:#}")))
    }
}

/// Where a KEK is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KekSource {
    /// In a file that only its owner can read.
    File(PathBuf),
    /// In this environment variable.
    Env(String),
    /// On the standard output of this command.
    Command(Vec<String>),
}

impl fmt::Display for KekSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Env(name) => write!(f, "environment variable {name}"),
            // Arguments may hold credentials.
            Self::Command(words) => write!(f, "command {}", words.first().map_or("", String::as_str)),
        }
    }
}

impl KekSource {
    /// The one source that is set. More than one is an error, because the choice would be ambiguous.
    pub(crate) fn one_of(
        file: Option<PathBuf>,
        env: Option<String>,
        command: Option<Vec<String>>,
    ) -> anyhow::Result<Option<Self>> {
        let mut sources: Vec<Self> = file.map(Self::File).into_iter().collect();
        sources.extend(env.map(Self::Env));
        sources.extend(command.map(Self::Command));
        ensure!(
            sources.len() <= 1,
            "exactly one of kek_file, kek_env and kek_command may be set, not {}",
            sources.len()
        );
        match sources.first() {
            Some(Self::Command(words)) if words.first().is_none_or(String::is_empty) => {
                bail!(
                    "kek_command must name a program and its arguments, such as [\"/usr/local/bin/kek\", \"--print\"]"
                )
            }
            _ => Ok(sources.pop()),
        }
    }

    /// Reads the KEK. Errors never quote its content.
    pub(crate) async fn read(&self) -> anyhow::Result<Kek> {
        let text = match self {
            Self::File(path) => read_file(path),
            Self::Env(name) => std::env::var(name).with_context(|| format!("{name} is not set, or is not valid UTF-8")),
            Self::Command(words) => run_command(words).await,
        };
        let kek = text.and_then(|text| Kek::parse(&text).map_err(|why| anyhow::anyhow!("its content {why}")));
        kek.with_context(|| format!("the key encryption key (KEK) cannot be read from {self}"))
    }
}

/// Reads a file, whose permissions must be private. Symbolic links are followed, because secrets are often mounted
/// through them; the permissions of the target count.
fn read_file(path: &Path) -> anyhow::Result<String> {
    let file = std::fs::File::open(path)?;
    if let Some(why) = private_file::exposure(&file.metadata()?) {
        bail!("{why}; run `chmod 600 {}` as the user that mailonce runs as", path.display());
    }
    let mut text = String::new();
    file.take(READ_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Runs a command and returns its standard output.
async fn run_command(argv: &[String]) -> anyhow::Result<String> {
    let (program, arguments) = argv.split_first().context("kek_command names no program")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("it cannot be started")?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let finished = async { tokio::join!(read_bounded(out), read_bounded(err), child.wait()) };
    let finished = timeout(COMMAND_TIMEOUT, finished).await;
    let (out, err, status) = finished.with_context(|| format!("it did not end within {COMMAND_TIMEOUT:?}"))?;
    let (out, err, status) = (out?, err?, status?);
    ensure!(out.len() < READ_MAX as usize, "it printed {READ_MAX} bytes or more");
    if !status.success() {
        // A program may repeat the key in its error message.
        let secret = out.trim();
        let message = if secret.is_empty() { err } else { err.replace(secret, "…") };
        let message: String = message.trim().chars().take(SHOWN_CHARS).collect();
        bail!("it ended with {status}: {message}");
    }
    Ok(out)
}

/// Reads the start of a stream as text. The rest is not read, so a program that prints more gets SIGPIPE and ends.
async fn read_bounded(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(READ_MAX).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What to do about a locked ledger.
pub(crate) const UNLOCK_HINT: &str = "set [secrets] kek_file, kek_env or kek_command to the KEK that wraps this ledger; \
    `mailonce secrets status` compares fingerprints. Without that KEK the ledger cannot be opened";

/// Whether an error means that the KEK is missing or wrong.
pub(crate) fn is_locked(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref::<StoreError>(), Some(StoreError::Locked(_))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn load(file: &str, env: &[(&str, &str)]) -> anyhow::Result<SecretsConfig> {
        let get = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        SecretsConfig::load(toml::from_str(file)?, get)
    }

    fn command(script: &str) -> KekSource {
        KekSource::Command(["sh", "-c", script].map(str::to_owned).to_vec())
    }

    async fn refused(source: KekSource) -> String {
        let why = format!("{:#}", source.read().await.unwrap_err());
        assert!(!why.contains(KEY), "{why}");
        why
    }

    #[test]
    fn one_place_is_taken_and_two_are_refused() {
        assert_eq!(load("", &[]).unwrap().kek, None);
        assert_eq!(load("kek_env = \"X\"", &[]).unwrap().kek, Some(KekSource::Env("X".into())));
        let instead = load("kek_env = \"X\"", &[("MAILONCE_SECRETS_KEK_FILE", "/k")]).unwrap();
        assert_eq!(instead.kek, Some(KekSource::File("/k".into())));
        let two = format!("{:#}", load("kek_env = \"X\"\nkek_file = \"/k\"", &[]).unwrap_err());
        assert!(two.contains("exactly one of kek_file, kek_env and kek_command"), "{two}");
        assert!(load("kek_command = []", &[]).is_err());
        let lacking = format!("{:#}", load("seal_bodies = true", &[]).unwrap_err());
        assert!(lacking.contains("needs a key encryption key") && lacking.contains("openssl rand"), "{lacking}");
        assert!(load("seal_bodies = true\nkek_env = \"X\"", &[]).unwrap().seal_bodies);
    }

    #[tokio::test]
    async fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kek");
        std::fs::write(&path, KEY).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let why = refused(KekSource::File(path.clone())).await;
        assert!(why.contains("others can read or write it") && why.contains("chmod 600"), "{why}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let kek = KekSource::File(path.clone()).read().await.unwrap();
        assert_eq!(kek.fingerprint(), Kek::parse(KEY).unwrap().fingerprint());
        std::fs::write(&path, "short").unwrap();
        assert!(refused(KekSource::File(path)).await.contains("not 5 characters"));
    }

    #[tokio::test]
    async fn a_command_prints_the_key_and_its_failures_never_show_it() {
        let kek = command(&format!("echo {KEY}")).read().await.unwrap();
        assert_eq!(kek.fingerprint(), Kek::parse(KEY).unwrap().fingerprint());
        let why = refused(command(&format!("echo {KEY}; echo vault said no: {KEY} >&2; exit 3"))).await;
        assert!(why.contains("vault said no: …") && why.contains("exit status: 3"), "{why}");
        assert!(refused(command("yes")).await.contains("4096 bytes or more"));
        assert!(refused(KekSource::Command(vec!["/nowhere/kek".into()])).await.contains("cannot be started"));
        assert!(refused(KekSource::Env("MAILONCE_NO_SUCH_KEK".into())).await.contains("is not set"));
    }
}
