// The storm with its drawing: each call is a bar, and only one of them became an email.
import { useState } from "preact/hooks";
import { intention } from "../../api/client";
import { Button } from "../../components/Button";
import { TextField } from "../../components/Field";
import { Problem } from "../../components/Problem";
import { duration } from "../../components/Time";
import { announce } from "../../components/Toast";
import { may } from "../../session/session";
import { CALLS, storm, type Call } from "./storm-calls";

const BAR = 6;
const WIDTH = 600;

function Drawing({ calls }: { calls: Call[] }) {
  const end = Math.max(1, ...calls.map(({ from, to }) => to ?? from));
  const count = (outcome: Call["outcome"]) => calls.filter((call) => call.outcome === outcome).length;
  const x = (ms: number) => (ms / end) * (WIDTH - 8);
  return (
    <svg class="home-storm" viewBox={`0 0 ${WIDTH} ${calls.length * BAR}`} preserveAspectRatio="none" role="img"
      aria-label={`${calls.length} calls in ${duration(end)}: ${count("first")} created the email, ${count("replayed")} were answered with it, ${count("failed")} failed.`}>
      {calls.map((call, index) => (
        <rect key={call.number} class={call.outcome} x={x(call.from)} y={index * BAR + 1} width={Math.max(3, x((call.to ?? end) - call.from))} height={BAR - 2} rx={1.5}>
          <title>{`Call ${call.number}: ${call.outcome}${call.to === null ? "" : ` after ${duration(call.to - call.from)}`}`}</title>
        </rect>
      ))}
    </svg>
  );
}

function Result({ calls }: { calls: Call[] }) {
  const answered = calls.filter(({ outcome }) => outcome === "first" || outcome === "replayed");
  const emails = [...new Set(answered.map(({ email }) => email))];
  const problem = calls.find((call) => call.problem)?.problem;
  return (
    <div class="stack" role="status">
      <div class="home-tiles">
        <p class="home-tile"><strong>{calls.length}</strong> calls</p>
        <p class="home-tile"><strong>{emails.length}</strong> {emails.length === 1 ? "email accepted" : "emails accepted"}</p>
        <p class="home-tile accent"><strong>{answered.length - emails.length}</strong> duplicates stopped</p>
      </div>
      {problem && <Problem problem={problem} />}
      {emails[0] && <p><a class="button" href={`/emails/${emails[0]}`}>See the email and its callers</a></p>}
    </div>
  );
}

export function Storm({ sender }: { sender: string }) {
  const [to, setTo] = useState("you@example.com");
  const [calls, setCalls] = useState<Call[]>([]);
  const done = calls.length > 0 && calls.every(({ outcome }) => outcome !== "running");
  const start = async () => {
    // One key for all calls: that is what makes them one email.
    const results = await storm({ from: sender, to: to.trim(), key: intention() }, setCalls);
    announce(`${results.length} calls answered`);
  };
  return (
    <div class="stack">
      <p>Agents retry, workers crash, queues deliver twice. This button sends the same email {CALLS} times at the same moment, with one idempotency key.</p>
      <div class="row home-storm-form">
        <TextField label="To" value={to} onInput={setTo} hint="One email leaves. mailonce dev keeps it in its sandbox." />
        <Button kind="primary" disabled={!may("send")} onPress={start}>Send it {CALLS} times</Button>
      </div>
      {!may("send") && <p class="muted">You need the role admin to send.</p>}
      {calls.length > 0 && <Drawing calls={calls} />}
      {calls.length > 0 && <p class="row small-text muted"><span>Each bar is a call, over {duration(Math.max(0, ...calls.map(({ to }) => to ?? 0)))}.</span><span class="legend"><i class="swatch accent" />created the email</span><span class="legend"><i class="swatch home-outline" />answered with the same email</span></p>}
      {done && <Result calls={calls} />}
    </div>
  );
}
