//! The command line as an operator's tool: configuration, keys, teams, doctor, migrate.

use serde_json::json;

use crate::fixtures::binary::{CliFixture, send_args};

#[tokio::test]
async fn the_openapi_command_prints_the_served_document() {
    let output = CliFixture::new().run(&["openapi"]).await.expect_exit(0);
    assert_eq!(output.stdout, mailonce::api::openapi_json());
}

#[tokio::test]
async fn an_unknown_field_of_the_configuration_is_refused_with_the_nearest_name() {
    let cli = CliFixture::new();
    for (file, near) in [
        ("stor = \"sqlite\"", "`store`"),
        ("http.lisen = \"127.0.0.1:0\"", "`listen`"),
        ("[smtp]\nlistn = \"x\"", "`listen`"),
    ] {
        std::fs::write(cli.path().join("mailonce.toml"), file).unwrap();
        for args in [&["serve"][..], &["dev"], &["migrate"], &["api-keys", "create"]] {
            let output = cli.run(args).await.expect_exit(5);
            assert!(output.stderr.contains(&format!("did you mean {near}?")), "{args:?}: {}", output.stderr);
            assert!(output.stderr.contains("mailonce.toml"), "{}", output.stderr);
        }
    }
    assert!(!cli.data_dir().exists(), "a refused configuration created a ledger");
}

#[tokio::test]
async fn an_invalid_configuration_is_refused() {
    let cli = CliFixture::new();
    let wrong: [(&[&str], &str); 5] = [
        (&["dev", "--http", "nowhere"], "127.0.0.1:6245"),
        (&["dev", "--smtp", "nowhere"], "127.0.0.1:6225"),
        (&["dev", "--store", "mysql://x"], "postgres://"),
        (&["dev", "--config", "missing.toml"], "missing.toml"),
        (&["serve", "--http", "127.0.0.1"], "127.0.0.1:6245"),
    ];
    for (args, hint) in wrong {
        let output = cli.run(args).await.expect_exit(5);
        assert!(output.stderr.contains(hint), "{args:?}: {}", output.stderr);
    }
    let output =
        cli.run_with_env(&["dev", "--http", "127.0.0.1:0"], &[("MAILONCE_HANDOFF", "maybe")]).await.expect_exit(5);
    assert!(output.stderr.contains("paused"), "{}", output.stderr);
}

#[tokio::test]
async fn flags_override_the_configuration_file() {
    let cli = CliFixture::new();
    std::fs::write(
        cli.path().join("mailonce.toml"),
        "data = \"./elsewhere\"\nhttp.listen = \"127.0.0.1:1\"\nhandoff = \"paused\"\n",
    )
    .unwrap();
    let server = cli.start_dev(&[]).await;
    assert!(server.startup_banner.contains("elsewhere/ledger.db"), "{}", server.startup_banner);
    cli.run(&[&send_args("k", "x")[..], &["--data", "elsewhere"]].concat()).await.expect_exit(0);
    assert!(cli.path().join("elsewhere/ledger.db").exists() && !cli.data_dir().exists());
}

#[tokio::test]
async fn migrate_creates_the_ledger_and_reports_its_schema() {
    let cli = CliFixture::new();
    let first = cli.run(&["migrate"]).await.expect_exit(0).json();
    assert!(first["schema"].as_i64().unwrap() >= 1);
    assert!(cli.data_dir().join("ledger.db").exists());
    assert_eq!(cli.run(&["migrate"]).await.expect_exit(0).json(), first);
}

#[tokio::test]
async fn doctor_passes_before_during_and_after_a_run() {
    let cli = CliFixture::new();
    let before = cli.run(&["doctor"]).await.expect_exit(0).json();
    assert_eq!(before["ok"], true);
    assert!(!cli.data_dir().join("ledger.db").exists(), "doctor created a ledger");
    let server = cli.start_dev(&[]).await;
    let during = cli.run(&["doctor"]).await.expect_exit(0).json();
    let server_check = during["checks"].as_array().unwrap().iter().find(|check| check["check"] == "server").unwrap();
    assert!(server_check["finding"].as_str().unwrap().contains(&server.url), "{during}");
    server.terminate().await;
    let after = cli.run(&["doctor"]).await.expect_exit(0).json();
    assert!(after["checks"].as_array().unwrap().iter().any(|check| check["check"] == "durability"), "{after}");
}

#[tokio::test]
async fn doctor_reports_each_failure_with_its_fix() {
    let cli = CliFixture::new();
    cli.run(&["migrate"]).await.expect_exit(0);
    let ledger = cli.data_dir().join("ledger.db");
    let mode = |mode| <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
    std::fs::set_permissions(&ledger, mode(0o644)).unwrap();
    let report = cli.run(&["doctor"]).await.expect_exit(5).json();
    let check =
        report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "permissions").unwrap().clone();
    assert_eq!(check["level"], "fail");
    assert!(check["next"].as_str().unwrap().contains("chmod 600"));
    std::fs::write(cli.path().join("mailonce.toml"), "stor = 1").unwrap();
    let report = cli.run(&["doctor"]).await.expect_exit(5).json();
    assert!(report["checks"][0]["finding"].as_str().unwrap().contains("`store`"), "{report}");
    std::fs::write(cli.path().join("mailonce.toml"), "data = 5").unwrap();
    let report = cli.run(&["doctor"]).await.expect_exit(5).json();
    assert!(report["checks"][0]["finding"].as_str().unwrap().contains("line 1: invalid type: integer `5`"), "{report}");
}

#[tokio::test]
async fn a_setting_out_of_range_is_refused_and_reported_once() {
    let cli = CliFixture::new();
    cli.run(&["api-keys", "create"]).await.expect_exit(0);
    std::fs::write(cli.path().join("mailonce.toml"), "[defaults]\nmax_attempts = 101").unwrap();
    let expected_error = "defaults.max_attempts must be from 1 to 100, not 101";
    let report = cli.run(&["doctor", "--offline"]).await.expect_exit(5).json();
    let matching_checks = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["finding"].as_str().unwrap().contains(expected_error));
    assert_eq!(matching_checks.count(), 1, "{report}");
    let refused = cli.run(&["serve"]).await;
    assert!(refused.exit_code != 0 && refused.stderr.contains(expected_error), "{refused:?}");
}

#[tokio::test]
async fn doctor_warns_that_serve_needs_an_api_key() {
    let cli = CliFixture::new();
    cli.run(&["migrate"]).await.expect_exit(0);
    let keys = |report: &serde_json::Value| {
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "api-keys");
        check
            .map(|check| (check["level"].clone(), check["next"].as_str().unwrap().contains("mailonce api-keys create")))
    };
    let before = cli.run(&["doctor", "--offline"]).await.expect_exit(0).json();
    assert_eq!(keys(&before), Some((json!("warn"), true)), "{before}");
    cli.run(&["api-keys", "create"]).await.expect_exit(0);
    let after = cli.run(&["doctor", "--offline"]).await.expect_exit(0).json();
    assert_eq!(keys(&after), None, "{after}");
}

#[tokio::test]
async fn commands_find_a_running_dev_by_the_configured_data_directory() {
    let cli = CliFixture::new();
    std::fs::write(cli.path().join("mailonce.toml"), "data = \"./fromfile\"").unwrap();
    let server = cli.start_dev(&[]).await;
    assert!(cli.path().join("fromfile/dev.json").exists() && !cli.data_dir().exists());
    cli.run(&["emails", "list"]).await.expect_exit(0);
    server.terminate().await;
}

#[tokio::test]
async fn the_ledger_is_readable_by_its_owner_alone() {
    let cli = CliFixture::new();
    cli.run(&["migrate"]).await.expect_exit(0);
    let metadata = std::fs::metadata(cli.data_dir().join("ledger.db")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077, 0);
}

#[tokio::test]
async fn api_keys_are_created_and_listed_without_a_server() {
    let cli = CliFixture::new();
    let first = cli.run(&["api-keys", "create", "--name", "one"]).await.expect_exit(0).json();
    let second = cli.run(&["api-keys", "create", "--name", "two", "--scope", "read"]).await.expect_exit(0).json();
    assert_eq!(first["team"], second["team"]);
    assert_ne!(first["api_key"], second["api_key"]);
    let list = cli.run(&["api-keys", "list"]).await.expect_exit(0);
    let rows = list.json()["data"].clone();
    assert_eq!(
        (&rows[0]["name"], &rows[0]["scopes"], &rows[1]["name"]),
        (&json!("two"), &json!(["read"]), &json!("one"))
    );
    assert!(!list.stdout.contains(first["api_key"].as_str().unwrap()));
    let output = cli.run(&["api-keys", "create", "--scope", "fly"]).await;
    assert!(output.exit_code != 0 && output.stderr.contains("operator"), "{output:?}");
    cli.run(&["api-keys", "list", "--team", "nobody"]).await.expect_exit(5);
    // The old name still works.
    assert_eq!(cli.run(&["keys", "list"]).await.expect_exit(0).json()["data"], rows);
}

#[tokio::test]
async fn a_login_never_picks_somebody_who_took_the_name() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let auth = format!("Bearer {}", server.api_key);
    let headers = [("authorization", auth.as_str()), ("content-type", "application/json")];
    let call = async |method: &str, path: &str, body: serde_json::Value| {
        let (status, response) = server.call(method, path, &headers, &body.to_string()).await;
        assert!(status < 300, "{response}");
        response
    };
    let eve = call("POST", "/v1/people", json!({ "name": "Eve", "role": "viewer" })).await;
    let eve = format!("/v1/people/{}", eve["id"].as_str().unwrap());
    call("PATCH", &eve, json!({ "rev": 1, "name": "Ada" })).await;
    let login = ["login", "--name", "Ada", "--role"];
    let first = cli.run(&[&login[..], &["admin"]].concat()).await.expect_exit(0).json();
    let again = cli.run(&[&login[..], &["approver"]].concat()).await.expect_exit(0).json();
    assert_eq!((&first["person"]["id"], &again["person"]["role"]), (&again["person"]["id"], &json!("approver")));
    assert_eq!(call("GET", &eve, json!({})).await["role"], "viewer");
    // The name that somebody has now is not the one to sign in by.
    let ada = format!("/v1/people/{}", again["person"]["id"].as_str().unwrap());
    call("PATCH", &ada, json!({ "rev": again["person"]["rev"], "name": "Countess" })).await;
    let refused = cli.run(&[&login[..], &["admin"]].concat()).await.expect_exit(5);
    assert!(refused.stderr.contains("Countess") && refused.stderr.contains(&ada), "{refused:?}");
    assert_eq!(call("GET", &ada, json!({})).await["role"], "approver");
    server.terminate().await;
    let refused = cli.run(&[&login[..], &["admin"]].concat()).await.expect_exit(5);
    assert!(refused.stderr.contains("Countess") && refused.stderr.contains(&ada), "{refused:?}");
}

#[tokio::test]
async fn a_running_server_takes_the_name_of_its_own_team() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    for args in [&["login", "--name", "Ada", "--role", "viewer"][..], &["api-keys", "list"], &["api-keys", "create"]] {
        cli.run(&[args, &["--team", "default"]].concat()).await.expect_exit(0);
        let refused = cli.run(&[args, &["--team", "others"]].concat()).await.expect_exit(64);
        assert!(refused.stderr.contains("others") && refused.stderr.contains("default"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_new_api_key_shows_its_limits() {
    let cli = CliFixture::new();
    let limits = ["--expires", "90d", "--allow-ip", "10.0.0.0/8", "--allow-sender", "@x.test", "--rate-per-s", "5"];
    let create = [&["api-keys", "create", "--scope", "send"], &limits[..]].concat();
    let check = |key: &serde_json::Value| {
        assert!(key["expires_at"].is_string() && key["api_key"].as_str().unwrap().starts_with("mo_"), "{key}");
        assert_eq!((&key["allow_ips"], &key["rate_per_s"]), (&json!(["10.0.0.0/8"]), &json!(5)));
        assert_eq!((&key["allowed_senders"], &key["scopes"]), (&json!(["@x.test"]), &json!(["send"])));
    };
    check(&cli.run(&create).await.expect_exit(0).json());
    let _server = cli.start_dev(&[]).await;
    check(&cli.run(&create).await.expect_exit(0).json());
    let output = cli.run(&[&create[..], &["--plain"]].concat()).await.expect_exit(0);
    assert!(output.stdout.starts_with("mo_") && output.stdout.lines().count() == 1, "{output:?}");
    assert!(output.stderr.contains("10.0.0.0/8") && output.stderr.contains("5 per second"), "{output:?}");
    cli.run(&["api-keys", "create", "--expires", "soon"]).await.expect_exit(64);
    cli.run(&["api-keys", "create", "--allow-ip", "everywhere"]).await.expect_exit(64);
}

#[tokio::test]
async fn api_keys_and_teams_come_from_a_running_server() {
    let cli = CliFixture::new();
    cli.run(&["api-keys", "create", "--name", "before"]).await.expect_exit(0);
    let server = cli.start_dev(&[]).await;
    let keys = cli.run(&["api-keys", "list"]).await.expect_exit(0).json();
    let names: Vec<&serde_json::Value> = keys["data"].as_array().unwrap().iter().map(|key| &key["name"]).collect();
    assert!(names.contains(&&json!("before")) && names.contains(&&json!("dev")), "{keys}");
    let teams = cli.run(&["team", "list"]).await.expect_exit(0).json();
    assert_eq!(teams["data"][0]["name"], "default");
    let sales = cli.run(&["team", "create", "sales"]).await.expect_exit(0).json();
    let env = [("MAILONCE_URL", server.url.as_str()), ("MAILONCE_API_KEY", sales["api_key"].as_str().unwrap())];
    let own = cli.run_with_env(&["api-keys", "list"], &env).await.expect_exit(0).json();
    assert_eq!(own["data"].as_array().unwrap().len(), 1, "{own}");
    let id = own["data"][0]["id"].as_str().unwrap();
    let revoked = cli.run_with_env(&["api-keys", "revoke", id], &env).await.expect_exit(0).json();
    assert!(revoked["data"][0]["revoked_at"].is_string(), "{revoked}");
    // A server acts for the team of the API key.
    cli.run(&["api-keys", "list", "--team", "sales"]).await.expect_exit(64);
    server.terminate().await;
}

#[tokio::test]
async fn teams_are_created_once_and_listed() {
    let cli = CliFixture::new();
    let created = cli.run(&["team", "create", "sales"]).await.expect_exit(0).json();
    let output = cli.run(&["team", "create", "sales"]).await.expect_exit(5);
    assert!(output.stderr.contains("api-keys create --team sales"), "{}", output.stderr);
    let output = cli.run(&["team", "create", ""]).await.expect_exit(5);
    assert!(output.stderr.contains("invalid_field"), "{}", output.stderr);
    let list = cli.run(&["team", "list"]).await.expect_exit(0).json();
    assert_eq!((&list["data"][0]["name"], &list["data"][0]["id"]), (&json!("sales"), &created["id"]));
}
