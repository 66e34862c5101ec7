// The rows of an email's waterfall: what happened, from the accept to the end, in the order of time.
import type { EmailDetail, Schema } from "../../api/types";

export type RowKind = "accept" | "wait" | "attempt" | "evidence" | "duplicate" | "end";

export interface Row {
  kind: RowKind;
  label: string;
  detail: string;
  /** Milliseconds since the accept. */
  from: number;
  to: number;
  tone: "accent" | "good" | "wait" | "bad" | "busy" | "plain";
}

const OUTCOME_TONES = { accepted: "good", deferred: "wait", refused: "bad", unknown: "wait" } as const;
const REASON_WORDS: Record<Schema["SuppressedCallBody"]["reason"], string> = {
  key_replay: "same key", payload_differs: "same key, other words", mismatch: "same key, different email: refused", already_answered: "already answered", identical: "identical email",
};

export function rowsOf(email: EmailDetail): Row[] {
  const start = Date.parse(email.created_at);
  const since = (at: string) => Math.max(0, Date.parse(at) - start);
  const attempts = email.handoffs.flatMap((handoff) => handoff.attempts.map((attempt) => attemptRow(handoff, attempt, since)));
  const first = Math.min(...attempts.map(({ from }) => from));
  const rows: Row[] = [{ kind: "accept", label: "Accepted", detail: email.key ? `key ${email.key}` : "without a key", from: 0, to: 0, tone: "accent" }];
  if (Number.isFinite(first) && first > 0) rows.push({ kind: "wait", label: "Waited", detail: "until the first attempt", from: 0, to: first, tone: "plain" });
  rows.push(...attempts, ...email.evidence.map((one) => evidenceRow(one, since)), ...email.suppressed_calls.map((call) => duplicateRow(call, since)));
  if (email.settled_at) rows.push(endRow(email, since(email.settled_at), rows));
  const order: RowKind[] = ["accept", "wait", "attempt", "evidence", "end", "duplicate"];
  return rows.sort((a, b) => a.from - b.from || order.indexOf(a.kind) - order.indexOf(b.kind));
}

const endTone = (state: EmailDetail["state"]): Row["tone"] =>
  state === "sent" || state === "delivered" ? "good" : state === "cancelled" || state === "abandoned" ? "plain" : "bad";

/** Bounces and reports of delivery arrive after the last attempt and change the state once more. */
function endRow(email: EmailDetail, at: number, rows: Row[]): Row {
  const changedLater = rows.some(({ kind, from }) => kind === "evidence" && from > at);
  const words = changedLater ? { detail: "no further attempt", tone: "plain" as const } : { detail: email.state, tone: endTone(email.state) };
  return { kind: "end", label: "Settled", from: at, to: at, ...words };
}

function attemptRow(handoff: Schema["HandoffBody"], attempt: Schema["AttemptBody"], since: (at: string) => number): Row {
  const from = since(attempt.at);
  const running = !attempt.ended_at && !attempt.outcome;
  return {
    kind: "attempt",
    label: `Attempt ${attempt.number}`,
    detail: `${handoff.recipients.join(", ")} by ${attempt.transport ?? handoff.transport}: ${attempt.outcome ?? "running"}`,
    from,
    to: attempt.ended_at ? since(attempt.ended_at) : running ? since(new Date().toISOString()) : from,
    tone: attempt.outcome ? OUTCOME_TONES[attempt.outcome] : "busy",
  };
}

const capitalized = (words: string) => words.charAt(0).toUpperCase() + words.slice(1);

const evidenceRow = (one: Schema["EvidenceBody"], since: (at: string) => number): Row => ({
  kind: "evidence", label: capitalized(one.says.replaceAll("_", " ")), detail: one.detail, from: since(one.at), to: since(one.at),
  tone: one.says === "delivered" || one.says === "accepted" ? "good" : one.says === "bounced" || one.says === "complained" ? "bad" : "plain",
});

function duplicateRow(call: Schema["SuppressedCallBody"], since: (at: string) => number): Row {
  const caller = call.call?.id ? `call ${call.call.id}` : call.caller ? `API key ${call.caller.slice(0, 8)}…` : "unknown caller";
  return { kind: "duplicate", label: "Duplicate stopped", detail: `${caller} via ${call.channel}: ${REASON_WORDS[call.reason]}`, from: since(call.at), to: since(call.at), tone: "accent" };
}

/** Attempts take milliseconds and repeats come after days, so the axis is logarithmic. */
export function scale(rows: Row[]): (ms: number) => number {
  const end = Math.max(10, ...rows.map(({ to }) => to));
  return (ms) => (Math.log10(1 + ms) / Math.log10(1 + end)) * 100;
}

const TICKS = [10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000, 604_800_000];

/** Ticks that are far enough apart to be read. */
export function ticks(rows: Row[]): number[] {
  const at = scale(rows);
  const end = Math.max(10, ...rows.map(({ to }) => to));
  const shown: number[] = [];
  for (const tick of TICKS) if (tick <= end && at(tick) < 96 && at(tick) - at(shown.at(-1) ?? 0) > 9) shown.push(tick);
  return shown;
}
