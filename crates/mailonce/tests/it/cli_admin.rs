//! The command line as an operator's tool: configuration, keys, teams, doctor, migrate.

use serde_json::json;

use crate::binary::{CliFixture, send_args};

#[tokio::test]
async fn the_document_is_printed_as_it_is_served() {
    let ran = CliFixture::new().run(&["openapi"]).await.expect_exit(0);
    assert_eq!(ran.stdout, mailonce::api::openapi_json());
}

#[tokio::test]
async fn an_unknown_field_of_the_configuration_is_refused_with_the_nearest_name() {
    let desk = CliFixture::new();
    for (file, near) in [
        ("stor = \"sqlite\"", "`store`"),
        ("http.lisen = \"127.0.0.1:0\"", "`listen`"),
        ("[smtp]\nlistn = \"x\"", "`listen`"),
    ] {
        std::fs::write(desk.path().join("mailonce.toml"), file).unwrap();
        for words in [&["serve"][..], &["dev"], &["migrate"], &["keys", "create"]] {
            let ran = desk.run(words).await.expect_exit(5);
            assert!(ran.stderr.contains(&format!("did you mean {near}?")), "{words:?}: {}", ran.stderr);
            assert!(ran.stderr.contains("mailonce.toml"), "{}", ran.stderr);
        }
    }
    assert!(!desk.data_dir().exists(), "a refused configuration made a ledger");
}

#[tokio::test]
async fn a_configuration_that_makes_no_sense_is_refused() {
    let desk = CliFixture::new();
    let wrong: [(&[&str], &str); 5] = [
        (&["dev", "--http", "nowhere"], "127.0.0.1:6245"),
        (&["dev", "--smtp", "nowhere"], "127.0.0.1:6225"),
        (&["dev", "--store", "mysql://x"], "postgres://"),
        (&["dev", "--config", "missing.toml"], "missing.toml"),
        (&["serve", "--http", "127.0.0.1"], "127.0.0.1:6245"),
    ];
    for (words, hint) in wrong {
        let ran = desk.run(words).await.expect_exit(5);
        assert!(ran.stderr.contains(hint), "{words:?}: {}", ran.stderr);
    }
    let ran =
        desk.run_with_env(&["dev", "--http", "127.0.0.1:0"], &[("MAILONCE_HANDOFF", "maybe")]).await.expect_exit(5);
    assert!(ran.stderr.contains("paused"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_configuration_file_is_obeyed_and_flags_win() {
    let desk = CliFixture::new();
    std::fs::write(
        desk.path().join("mailonce.toml"),
        "data = \"./elsewhere\"\nhttp.listen = \"127.0.0.1:1\"\nhandoff = \"paused\"\n",
    )
    .unwrap();
    let server = desk.start_dev(&[]).await;
    assert!(server.startup_banner.contains("elsewhere/ledger.db"), "{}", server.startup_banner);
    desk.run(&[&send_args("k", "x")[..], &["--data", "elsewhere"]].concat()).await.expect_exit(4);
    assert!(desk.path().join("elsewhere/ledger.db").exists() && !desk.data_dir().exists());
}

#[tokio::test]
async fn migrate_makes_the_ledger_and_says_its_schema() {
    let desk = CliFixture::new();
    let first = desk.run(&["migrate"]).await.expect_exit(0).json();
    assert!(first["schema"].as_i64().unwrap() >= 1);
    assert!(desk.data_dir().join("ledger.db").exists());
    assert_eq!(desk.run(&["migrate"]).await.expect_exit(0).json(), first);
}

#[tokio::test]
async fn doctor_is_content_before_during_and_after_a_run() {
    let desk = CliFixture::new();
    let before = desk.run(&["doctor"]).await.expect_exit(0).json();
    assert_eq!(before["ok"], true);
    assert!(!desk.data_dir().join("ledger.db").exists(), "looking made a ledger");
    let server = desk.start_dev(&[]).await;
    let during = desk.run(&["doctor"]).await.expect_exit(0).json();
    let server_check = during["checks"].as_array().unwrap().iter().find(|check| check["check"] == "server").unwrap();
    assert!(server_check["found"].as_str().unwrap().contains(&server.url), "{during}");
    server.terminate().await;
    let after = desk.run(&["doctor"]).await.expect_exit(0).json();
    assert!(after["checks"].as_array().unwrap().iter().any(|check| check["check"] == "durability"), "{after}");
}

#[tokio::test]
async fn doctor_names_what_is_to_be_mended() {
    let desk = CliFixture::new();
    desk.run(&["migrate"]).await.expect_exit(0);
    let ledger = desk.data_dir().join("ledger.db");
    let mode = |mode| <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
    std::fs::set_permissions(&ledger, mode(0o644)).unwrap();
    let ill = desk.run(&["doctor"]).await.expect_exit(5).json();
    let check = ill["checks"].as_array().unwrap().iter().find(|check| check["check"] == "permissions").unwrap().clone();
    assert_eq!(check["level"], "fail");
    assert!(check["next"].as_str().unwrap().contains("chmod 600"));
    std::fs::write(desk.path().join("mailonce.toml"), "stor = 1").unwrap();
    let ill = desk.run(&["doctor"]).await.expect_exit(5).json();
    assert!(ill["checks"][0]["found"].as_str().unwrap().contains("`store`"), "{ill}");
    std::fs::write(desk.path().join("mailonce.toml"), "data = 5").unwrap();
    let ill = desk.run(&["doctor"]).await.expect_exit(5).json();
    assert!(ill["checks"][0]["found"].as_str().unwrap().contains("line 1: invalid type: integer `5`"), "{ill}");
}

#[tokio::test]
async fn a_number_outside_its_bounds_is_refused_and_told_once() {
    let desk = CliFixture::new();
    desk.run(&["keys", "create"]).await.expect_exit(0);
    std::fs::write(desk.path().join("mailonce.toml"), "[defaults]\nmax_attempts = 101").unwrap();
    let said = "defaults.max_attempts is from 1 to 100, not 101";
    let ill = desk.run(&["doctor", "--offline"]).await.expect_exit(5).json();
    let told = ill["checks"].as_array().unwrap().iter().filter(|check| check["found"].as_str().unwrap().contains(said));
    assert_eq!(told.count(), 1, "{ill}");
    let refused = desk.run(&["serve"]).await;
    assert!(refused.exit_code != 0 && refused.stderr.contains(said), "{refused:?}");
}

#[tokio::test]
async fn doctor_says_that_serve_wants_a_key() {
    let desk = CliFixture::new();
    desk.run(&["migrate"]).await.expect_exit(0);
    let keys = |report: &serde_json::Value| {
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "keys");
        check.map(|check| (check["level"].clone(), check["next"].as_str().unwrap().contains("mailonce keys create")))
    };
    let before = desk.run(&["doctor", "--offline"]).await.expect_exit(0).json();
    assert_eq!(keys(&before), Some((json!("warn"), true)), "{before}");
    desk.run(&["keys", "create"]).await.expect_exit(0);
    let after = desk.run(&["doctor", "--offline"]).await.expect_exit(0).json();
    assert_eq!(keys(&after), None, "{after}");
}

#[tokio::test]
async fn a_running_dev_is_found_where_the_file_says_its_data_is() {
    let desk = CliFixture::new();
    std::fs::write(desk.path().join("mailonce.toml"), "data = \"./fromfile\"").unwrap();
    let server = desk.start_dev(&[]).await;
    assert!(desk.path().join("fromfile/dev.json").exists() && !desk.data_dir().exists());
    desk.run(&["emails", "list"]).await.expect_exit(0);
    server.terminate().await;
}

#[tokio::test]
async fn the_ledger_is_readable_by_its_owner_alone() {
    let desk = CliFixture::new();
    desk.run(&["migrate"]).await.expect_exit(0);
    let about = std::fs::metadata(desk.data_dir().join("ledger.db")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o077, 0);
}

#[tokio::test]
async fn keys_are_made_and_listed_on_the_ledger_itself() {
    let desk = CliFixture::new();
    let first = desk.run(&["keys", "create", "--name", "one"]).await.expect_exit(0).json();
    let second = desk.run(&["keys", "create", "--name", "two", "--scope", "read"]).await.expect_exit(0).json();
    assert_eq!(first["team"], second["team"]);
    assert_ne!(first["api_key"], second["api_key"]);
    let list = desk.run(&["keys", "list"]).await.expect_exit(0);
    let rows = list.json()["data"].clone();
    assert_eq!(
        (&rows[0]["name"], &rows[0]["scopes"], &rows[1]["name"]),
        (&json!("two"), &json!(["read"]), &json!("one"))
    );
    assert!(!list.stdout.contains(first["api_key"].as_str().unwrap()));
    let ran = desk.run(&["keys", "create", "--scope", "fly"]).await;
    assert!(ran.exit_code != 0 && ran.stderr.contains("operator"), "{ran:?}");
    desk.run(&["keys", "list", "--team", "nobody"]).await.expect_exit(5);
}

#[tokio::test]
async fn teams_are_made_once_and_listed() {
    let desk = CliFixture::new();
    let made = desk.run(&["team", "create", "sales"]).await.expect_exit(0).json();
    let ran = desk.run(&["team", "create", "sales"]).await.expect_exit(5);
    assert!(ran.stderr.contains("keys create --team sales"), "{}", ran.stderr);
    let ran = desk.run(&["team", "create", ""]).await.expect_exit(5);
    assert!(ran.stderr.contains("invalid_field"), "{}", ran.stderr);
    let list = desk.run(&["team", "list"]).await.expect_exit(0).json();
    assert_eq!((&list["data"][0]["name"], &list["data"][0]["id"]), (&json!("sales"), &made["team"]));
}
