//! What a person sees at a terminal: signs of life while something takes long, and help that fits. A pseudo-terminal
//! stands in for the person, held by Python.

use std::process::Stdio;

use crate::binary::{CliFixture, send_args};

/// Runs a program in a terminal of so many columns, prints what it showed and ends as it ended. A program that waits for
/// Enter gets it after the sign-in link that it printed was followed; the answer to that is printed last.
const PTY_SCRIPT: &str = r#"
import fcntl, http.client, os, pty, re, struct, sys, termios, urllib.parse
def follow(link):
    url = urllib.parse.urlsplit(link)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    connection.request("POST", url.path + "?" + url.query)
    answer = connection.getresponse()
    return f"followed: {answer.status} {answer.getheader('location')}\n"
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
shown = b""
followed = ""
asked = False
while True:
    try:
        part = os.read(fd, 65536)
    except OSError:
        break
    if not part:
        break
    shown += part
    if b"Press Enter" in shown and not asked:
        asked = True
        link = re.search(rb"http://\S+/sign-in/\S+", shown)
        followed = follow(link[0].decode()) if link else ""
        os.write(fd, b"\n")
sys.stdout.buffer.write(shown + followed.encode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

/// What a terminal showed, and the exit code.
async fn run_in_terminal(cli: &CliFixture, columns: u32, words: &[&str]) -> (String, i32) {
    run_in_terminal_with_env(cli, columns, words, &[("TERM", "xterm")]).await
}

async fn run_in_terminal_with_env(
    cli: &CliFixture,
    columns: u32,
    words: &[&str],
    env: &[(&str, &str)],
) -> (String, i32) {
    // Python is looked for where we look; the program itself gets nothing of it but a kind of terminal.
    let mut command = tokio::process::Command::new("python3");
    command.args(["-c", PTY_SCRIPT, &columns.to_string(), env!("CARGO_BIN_EXE_mailonce")]).args(words);
    command.current_dir(cli.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("MAILONCE_SMTP_LISTEN", "127.0.0.1:0").envs(env.iter().copied());
    command.kill_on_drop(true).stdin(Stdio::null());
    let ended = tokio::time::timeout(std::time::Duration::from_mins(1), command.output()).await;
    let output = ended.expect("it does not end").unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code().unwrap_or(-1))
}

/// The frames of a wheel.
fn has_spinner(screen: &str) -> bool {
    screen.chars().any(|c| ('\u{2800}'..='\u{28ff}').contains(&c))
}

#[tokio::test]
async fn long_commands_show_progress_and_clear_it() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    cli.run(&send_args("k", "x")).await.expect_exit(0);
    let storm = ["demo", "storm", "--callers", "9", "--data", "elsewhere"];
    let cases: [(&[&str], &str, i32); 6] = [
        (&["wait", "agent@mailonce.test", "--subject", "never", "--timeout", "1"], "waiting up to 1 s", 2),
        (&["take", "agent@mailonce.test", "--for", "x", "--wait", "1"], "waiting up to 1 s", 2),
        (&["backup", "copy.db"], "copying the ledger", 0),
        (&["bench", "--count", "200", "--connections", "2"], "/200", 0),
        (&["prove", "--callers", "4"], "/", 0),
        (&storm, "/9", 0),
    ];
    for (words, sign, code) in cases {
        let (screen, ended) = run_in_terminal(&cli, 100, words).await;
        assert_eq!(ended, code, "{words:?}: {screen}");
        assert!(has_spinner(&screen) && screen.contains(sign), "{words:?} shows no sign of life: {screen:?}");
        // The last thing that happens to a sign is that it goes.
        let last = screen.rfind(|c| ('\u{2800}'..='\u{28ff}').contains(&c)).unwrap();
        assert!(screen[last..].contains("\u{1b}[2K"), "{words:?} leaves its sign: {screen:?}");
    }
    // The demo keeps its server until the person has seen the email's page.
    let (screen, _) = run_in_terminal(&cli, 100, &storm).await;
    let link = screen.split_whitespace().find(|word| word.contains("/sign-in/")).expect("no link to the dashboard");
    // At another host than `mailonce dev`, whose session it would end otherwise.
    assert!(link.starts_with("http://localhost:"), "{screen}");
    let (_, page) = link.split_once("?next=").expect("the link names no page");
    assert!(page.starts_with("/emails/") && screen.contains(&format!("followed: 303 {page}")), "{screen}");
    // Into a pipe there is none.
    let piped = cli.run(&["bench", "--count", "20", "--connections", "2"]).await.expect_exit(0);
    assert!(!has_spinner(&piped.stderr) && piped.stderr.is_empty(), "{piped:?}");
    server.terminate().await;
}

#[tokio::test]
async fn a_terminal_gets_words_and_colours_unless_it_wants_none() {
    let cli = CliFixture::new();
    let words = ["doctor", "--offline"];
    let (screen, _) = run_in_terminal(&cli, 100, &words).await;
    assert!(screen.contains("\u{1b}[32mok") && !screen.contains('{'), "{screen:?}");
    for plain in [[("TERM", "xterm"), ("NO_COLOR", "1")], [("TERM", "dumb"), ("LANG", "C")]] {
        let (screen, _) = run_in_terminal_with_env(&cli, 100, &words, &plain).await;
        assert!(screen.contains("ok    configuration") && !screen.contains('\u{1b}'), "{plain:?}: {screen:?}");
    }
    let (screen, _) = run_in_terminal(&cli, 100, &["doctor", "--offline", "--json"]).await;
    assert!(serde_json::from_str::<serde_json::Value>(screen.trim()).is_ok(), "{screen:?}");
}

#[tokio::test]
async fn help_fits_the_terminal() {
    let cli = CliFixture::new();
    for columns in [60, 80, 100] {
        for words in
            [&["--help"][..], &["send", "--help"], &["dev", "--help"], &["prove", "--help"], &["emails", "--help"]]
        {
            let (screen, code) = run_in_terminal(&cli, columns, words).await;
            let plain = strip_colors(&screen);
            let wide: Vec<&str> =
                plain.lines().map(str::trim_end).filter(|line| line.chars().count() > columns as usize).collect();
            assert!(code == 0 && wide.is_empty(), "{words:?} at {columns}: {wide:#?}");
        }
    }
    // Where nobody says how wide it is, lines are still for reading.
    let piped = cli.run(&["send", "--help"]).await.expect_exit(0);
    assert!(piped.stdout.lines().all(|line| line.chars().count() <= 100), "{}", piped.stdout);
}

/// Without what sets colours.
fn strip_colors(screen: &str) -> String {
    let mut parts = screen.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}
