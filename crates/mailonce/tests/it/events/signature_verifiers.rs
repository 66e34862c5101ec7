//! Webhook signatures checked with the official npm and PyPI libraries `standardwebhooks` and `svix`.

use mailonce_transport::{egress::EgressPolicy, webhook::HttpWebhookSender};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::fixtures::{
    api_fixture::{World, mail},
    packages::{install_npm, install_python},
    webhook_receivers::WebhookServer,
};

const NODE_VERIFIER: &str = r#"
const { Webhook: Standard } = require("standardwebhooks");
const { Webhook: Svix } = require("svix");
const { deliveries } = JSON.parse(require("fs").readFileSync(0, "utf8"));
let checked = 0;
for (const { headers, body, good, bad } of deliveries) {
  for (const Verifier of [Standard, Svix]) {
    for (const secret of good) { new Verifier(secret).verify(body, headers); checked++; }
    const refused = (secret, text, sentHeaders) => {
      try { new Verifier(secret).verify(text, sentHeaders); } catch { checked++; return; }
      throw new Error("a forged delivery was accepted");
    };
    for (const secret of bad) refused(secret, body, headers);
    refused(good[0], body.replace("email", "e-mail"), headers);
    refused(good[0], body, { ...headers, "webhook-id": "x", "svix-id": "x" });
  }
}
console.log(checked);
"#;

const PYTHON_VERIFIER: &str = r#"
import json, sys
from standardwebhooks.webhooks import Webhook as Standard
from svix.webhooks import Webhook as Svix
checked = 0
for case in json.load(sys.stdin)["deliveries"]:
    headers, body, good, bad = case["headers"], case["body"], case["good"], case["bad"]
    for verifier in (Standard, Svix):
        for secret in good:
            verifier(secret).verify(body, headers)
            checked += 1
        forged = [(secret, body, headers) for secret in bad]
        forged.append((good[0], body.replace("email", "e-mail"), headers))
        forged.append((good[0], body, {**headers, "webhook-id": "x", "svix-id": "x"}))
        for secret, text, sent_headers in forged:
            try:
                verifier(secret).verify(text, sent_headers)
            except Exception:
                checked += 1
                continue
            raise SystemExit("a forged delivery was accepted")
print(checked)
"#;

/// Runs a verifier over the deliveries and returns how many checks it made.
fn run_verifier(command: &mut Command, cases: &Value) -> usize {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(cases.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn verifier_case(request: &str, good: &[&Value], bad: &[&Value]) -> Value {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let headers: serde_json::Map<String, Value> =
        head.lines().skip(1).filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.into(), v.into())).collect();
    json!({ "headers": headers, "body": body, "good": good, "bad": bad })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_verifiers_accept_every_delivery_and_no_forgery() {
    let webhook_server = WebhookServer::start().await;
    let webhooks = HttpWebhookSender::new(EgressPolicy::new(Vec::new(), true), &[]).unwrap();
    let world = World::sqlite().await.with_notifier(Arc::new(webhooks)).await;
    // The libraries refuse timestamps older than five minutes.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    world.advance_clock(now - world.engine.ctx.now().0);
    world.engine.ctx.confirm_time();
    let endpoint = world.create_endpoint(&format!("http://{}/in", webhook_server.address)).await;
    let path = format!("/v1/endpoints/{}/rotate", endpoint["id"].as_str().unwrap());
    let send_and_deliver = async |key: &str| {
        world.send(key, &mail()).await.expect_status(202);
        world.hand_off_due().await;
        world.engine.events.deliver_due_notices().await;
        world.engine.events.deliver_due_notices().await;
    };
    send_and_deliver("before").await;
    let rotated = world.post(&path, &json!({ "previous_secret_ttl": "1h" })).await.expect_status(200);
    send_and_deliver("during").await;
    let last = world.post(&path, &json!({ "previous_secret_ttl": "0s" })).await.expect_status(200);
    send_and_deliver("after").await;
    let (one, two, three) = (&endpoint["secret"], &rotated["secret"], &last["secret"]);
    let requests = webhook_server.requests();
    assert_eq!(requests.len(), 6);
    let deliveries: Vec<Value> = requests
        .iter()
        .enumerate()
        .map(|(n, request)| match n / 2 {
            0 => verifier_case(request, &[one], &[two, three]),
            1 => verifier_case(request, &[two, one], &[three]),
            _ => verifier_case(request, &[three], &[one, two]),
        })
        .collect();
    let cases = json!({ "deliveries": deliveries });
    // Two libraries, each with every secret, a changed body and a changed id.
    let checks = 6 * 2 * (3 + 2);
    let home = install_npm("verifiers-npm", &["standardwebhooks@1.1.1", "svix@1.99.1"]);
    assert_eq!(run_verifier(Command::new("node").args(["-e", NODE_VERIFIER]).current_dir(home), &cases), checks);
    let python = install_python("verifiers-pypi", &["standardwebhooks==1.1.0", "svix==2.9.1"]);
    assert_eq!(run_verifier(Command::new(python).args(["-c", PYTHON_VERIFIER]), &cases), checks);
}
