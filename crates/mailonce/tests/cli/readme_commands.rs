//! Runs the commands of the README's section "The first minute" and checks what each of them prints.

use serde_json::Value;
use std::time::Duration;

use crate::binary::{CliFixture, CommandOutput};

/// The commands of the README's first screen, with what stands behind each.
fn readme_commands() -> Vec<(Vec<String>, String)> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let minute = page.split("## The first minute").nth(1).unwrap().split("\n**").next().unwrap();
    let line = |line: &str| {
        let (words, about) = line.strip_prefix("$ mailonce ")?.split_once('#').unwrap_or((&line[11..], ""));
        Some((words.split_whitespace().map(str::to_owned).collect(), about.trim().to_owned()))
    };
    minute.lines().filter_map(line).collect()
}

#[tokio::test]
async fn the_first_minute_goes_as_it_is_told() {
    let commands = readme_commands();
    let verbs: Vec<&str> = commands.iter().map(|(words, _)| words[0].as_str()).collect();
    assert_eq!(verbs, ["dev", "demo", "mcp", "simulate", "take", "doctor"]);
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    std::fs::create_dir(cli.path().join(".cursor")).unwrap();
    let door: Value = serde_json::from_slice(&std::fs::read(cli.data_dir().join("dev.json")).unwrap()).unwrap();
    let smtp = door["smtp"].as_str().unwrap();
    let env = [("HOME", cli.path().to_str().unwrap()), ("MAILONCE_SMTP_LISTEN", smtp)];
    let mut code = String::new();
    for (words, about) in &commands[1..] {
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.push("--plain");
        let mut ran: CommandOutput = cli.run_with_env(&words, &env).await;
        for _ in 0..100 {
            // The mail may still be on its way to the inbox.
            if words[0] != "take" || ran.exit_code == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            ran = cli.run_with_env(&words, &env).await;
        }
        let ran = ran.expect_exit(0);
        match words[0] {
            "demo" => {
                assert!(about.starts_with("50 clients") && ran.stderr.contains("50 clients send"), "{ran:?}");
                assert!(ran.stdout.contains(" 1 email accepted, 1 email delivered.\n"), "{ran:?}");
                assert!(ran.stdout.contains("Timeline as a page: file://"), "{ran:?}");
            }
            "mcp" => assert!(ran.stderr.contains(".cursor/mcp.json") && ran.stderr.contains("Pass --yes"), "{ran:?}"),
            "simulate" => {
                assert!(about.contains("agent@mailonce.test") && ran.stdout.contains("agent@mailonce.test"), "{ran:?}");
                code = ran.stdout.lines().find_map(|line| line.strip_prefix("code ")).unwrap().to_owned();
            }
            "take" => assert_eq!(ran.stdout, format!("{code}\n")),
            _ => assert!(ran.stdout.contains("hand-off") && ran.stdout.contains("to send real mail"), "{ran:?}"),
        }
    }
    // Another run does not get it.
    cli.run(&["take", "agent@mailonce.test", "--for", "another"]).await.expect_exit(5);
    server.terminate().await;
}
