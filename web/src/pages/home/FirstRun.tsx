// What an empty dashboard teaches: paste a command twice, and watch the duplicate appear.
import { useState } from "preact/hooks";
import { useEvents } from "../../api/events";
import type { MailEvent } from "../../api/types";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { NewKeyButton } from "../../components/NewKeyButton";
import { PageHead } from "../../components/PageHead";
import { Time } from "../../components/Time";
import { announce } from "../../components/Toast";
import { Storm } from "./Storm";

const command = (sender: string, key: string) => `curl -s ${window.location.origin}/v1/emails \\
  -H "Authorization: Bearer ${key || "$MAILONCE_API_KEY"}" \\
  -H 'Idempotency-Key: hello-1' -H 'Content-Type: application/json' \\
  -d '{"from": "${sender}", "to": "you@example.com", "subject": "Hello", "text": "Sent once."}'`;

const WORDS: Record<string, string> = {
  "email.accepted": "Accepted: the first call created the email",
  "email.held": "Accepted and held: a person decides",
  "email.sent": "Sent: the next hop has it",
  "email.delivered": "Delivered",
};

function EventLine({ event }: { event: MailEvent }) {
  const calls = (event.data as { call_count?: number }).call_count ?? 1;
  const duplicate = event.type === "email.duplicate";
  return (
    <li class={duplicate ? "duplicate" : ""}>
      <strong>{duplicate ? `Duplicate stopped: ${calls === 1 ? "the call" : `${calls} calls`} got the first email back, and nothing was sent` : WORDS[event.type] ?? event.type}</strong>
      <span><Time at={event.at} /> · <a href={`/emails/${event.about.id}`}>open</a></span>
    </li>
  );
}

function Listening() {
  const [events, setEvents] = useState<MailEvent[]>([]);
  useEvents("email.*", (event) => {
    setEvents((old) => [...old.slice(-19), event]);
    if (event.type === "email.duplicate") announce("A duplicate was stopped");
  });
  const next = events.length === 0
    ? "Waiting for the first call…"
    : events.some(({ type }) => type === "email.duplicate") ? "That is all there is to it: same key, one email." : "Now run the same command again.";
  return (
    <div class="home-live">
      <ol>{events.map((event) => <EventLine key={event.id} event={event} />)}</ol>
      <p class="home-waiting" role="status">{next}</p>
    </div>
  );
}

export function FirstRun({ sender, leave }: { sender: string; leave: () => void }) {
  const [key, setKey] = useState("");
  return (
    <>
      <PageHead title="Send your first email, twice" intro="mailonce makes each email happen once. See it with your own eyes: the second call sends nothing.">
        <Button onPress={leave}>Go to the overview</Button>
      </PageHead>
      <section class="card stack" aria-labelledby="first-run-curl">
        <h2 id="first-run-curl">1. Run this in a terminal, two times</h2>
        <Code text={command(sender, key)} label="the command" />
        {key ? <p class="hint">The key is shown only now. It may send and read, nothing else.</p> : <NewKeyButton name="first-email" scopes={["send", "read"]} onKey={setKey} />}
        <Listening />
      </section>
      <section class="card stack" aria-labelledby="first-run-storm">
        <h2 id="first-run-storm">2. Or let this page do it, 50 times at once</h2>
        <Storm sender={sender} />
      </section>
    </>
  );
}
