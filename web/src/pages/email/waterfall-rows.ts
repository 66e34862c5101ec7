// The rows of an email's waterfall: what happened, from the accept to the end, in the order of time.
import type { EmailDetail, Schema } from "../../api/types";
import { callerOf, channelName, REASONS, type SuppressedCall } from "../../components/SuppressedCalls";
import { duration } from "../../components/Time";
import { phaseWords } from "../needs-you/Evidence";

export type RowKind = "accept" | "wait" | "attempt" | "evidence" | "duplicate" | "end";

export interface Row {
  kind: RowKind;
  label: string;
  /** Short, because a row is one line. */
  detail: string;
  /** What does not fit on the line. */
  title?: string;
  /** Milliseconds since the accept. */
  from: number;
  to: number;
  /** The times of the calls that are drawn in this row. */
  marks?: number[];
  tone: "accent" | "good" | "wait" | "bad" | "busy" | "plain";
}

type Handoff = Schema["HandoffBody"];
type Attempt = Schema["AttemptBody"];
type Since = (at: string) => number;

const OUTCOME_TONES = { accepted: "good", deferred: "wait", refused: "bad", unknown: "wait" } as const;
const ORDER: RowKind[] = ["accept", "wait", "attempt", "evidence", "end", "duplicate"];

/** `now` is where bars end that are still going on. With `each`, every duplicate has a row of its own. */
export function rowsOf(email: EmailDetail, now: number, each: boolean): Row[] {
  const start = Date.parse(email.created_at);
  const since = (at: string) => Math.max(0, Date.parse(at) - start);
  const rows: Row[] = [{ kind: "accept", label: "Accepted", detail: email.key ? `key ${email.key}` : "without a key", from: 0, to: 0, tone: "accent" }];
  rows.push(...waitsOf(email, since, Math.max(0, now - start)));
  for (const handoff of email.handoffs) rows.push(...handoffRows(email, handoff, since, Math.max(0, now - start)));
  rows.push(...email.evidence.map((one) => evidenceRow(one, since)), ...duplicateRows(email.suppressed_calls, since, each));
  if (email.settled_at) rows.push(endRow(email, since(email.settled_at), rows));
  return rows.sort((a, b) => a.from - b.from || ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind));
}

const wasHeld = (email: EmailDetail) => email.holds.length > 0 || email.policy.some(({ verdict }) => verdict === "hold");

/** What kept the email before its first attempt. */
function waitsOf(email: EmailDetail, since: Since, now: number): Row[] {
  const attempts = email.handoffs.flatMap((handoff) => handoff.attempts.map(({ at }) => since(at)));
  const first = attempts.length > 0 ? Math.min(...attempts) : null;
  const end = first ?? (email.settled_at ? since(email.settled_at) : null);
  const row = (label: string, detail: string, to: number, tone: Row["tone"]): Row[] => (to > 0 ? [{ kind: "wait", label, detail, from: 0, to, tone }] : []);
  const until = first === null ? "until it was settled" : "until the first attempt";
  if (email.state === "held") return row("Held", `by ${email.holds.map((hold) => hold.replaceAll("_", " ")).join(", ") || "a guard"}, for a person to decide`, now, "wait");
  if (wasHeld(email) && end !== null) return row("Held", `for a person to decide, ${until}`, end, "wait");
  if (email.scheduled_at && end === null) return row("Scheduled", "leaves at the end of the bar", since(email.scheduled_at), "plain");
  return row(end === null ? "Waiting" : "Waited", end === null ? "for the first attempt" : until, end ?? now, "plain");
}

/** The attempts of a handoff, and the pauses between them. */
function handoffRows(email: EmailDetail, handoff: Handoff, since: Since, now: number): Row[] {
  return handoff.attempts.flatMap((attempt, index) => {
    const row = attemptRow(email, handoff, attempt, since, now);
    const next = handoff.attempts[index + 1]?.at ?? (handoff.state === "queued" || handoff.state === "unknown" ? handoff.due_at : null);
    return next && since(next) > row.to ? [row, pauseRow(attempt, row.to, since(next))] : [row];
  });
}

const pauseRow = ({ outcome, number }: Attempt, from: number, to: number): Row => ({
  kind: "wait", label: outcome === "unknown" ? "Looked for evidence" : "Backoff", detail: `after attempt ${number}`, from, to, tone: "plain",
});

const endTone = (state: EmailDetail["state"]): Row["tone"] =>
  state === "sent" || state === "delivered" ? "good" : state === "cancelled" || state === "abandoned" ? "plain" : "bad";

/** Bounces and reports of delivery arrive after the last attempt and change the state once more. */
function endRow(email: EmailDetail, at: number, rows: Row[]): Row {
  const changedLater = rows.some(({ kind, from }) => kind === "evidence" && from > at);
  const words = changedLater ? { detail: "no further attempt", tone: "plain" as const } : { detail: email.state, tone: endTone(email.state) };
  return { kind: "end", label: "Settled", from: at, to: at, ...words };
}

function attemptRow(email: EmailDetail, handoff: Handoff, attempt: Attempt, since: Since, now: number): Row {
  const from = since(attempt.at);
  const running = !attempt.ended_at && !attempt.outcome;
  const recipients = handoff.recipients.join(", ");
  const phase = attempt.outcome === "accepted" ? "" : phaseWords(attempt.phase);
  const outcome = `${attempt.outcome ?? "running"} by ${attempt.transport ?? handoff.transport}${phase && ` while ${phase}`}`;
  return {
    kind: "attempt",
    label: `Attempt ${attempt.number}`,
    detail: email.handoffs.length > 1 ? `${outcome} · ${recipients}` : outcome,
    title: [recipients, attempt.phase && `last phase: ${phaseWords(attempt.phase)}`, attempt.reply].filter(Boolean).join(" · "),
    from,
    to: attempt.ended_at ? since(attempt.ended_at) : running ? Math.max(from, now) : from,
    tone: attempt.outcome ? OUTCOME_TONES[attempt.outcome] : "busy",
  };
}

const capitalized = (words: string) => words.charAt(0).toUpperCase() + words.slice(1);

const evidenceRow = (one: Schema["EvidenceBody"], since: Since): Row => ({
  kind: "evidence", label: capitalized(one.says.replaceAll("_", " ")), detail: one.detail, title: one.detail, from: since(one.at), to: since(one.at),
  tone: one.says === "delivered" || one.says === "accepted" ? "good" : one.says === "bounced" || one.says === "complained" ? "bad" : "plain",
});

function duplicateRow(call: SuppressedCall, since: Since): Row {
  const refused = call.reason === "mismatch";
  const at = since(call.at);
  return {
    kind: "duplicate", label: refused ? "Refused" : "Duplicate stopped", detail: `${refused ? "another email with this key · " : ""}${callerOf(call)} · ${channelName(call.channel)}`,
    title: `${callerOf(call)} · ${channelName(call.channel)} · ${REASONS[call.reason]}`, from: at, to: at, marks: [at], tone: refused ? "bad" : "accent",
  };
}

/** Calls that follow each other within this time share a row. */
const BURST_MS = 100;

/** Duplicates in the order of time; those of a burst are one row with a mark for each. */
function duplicateRows(calls: SuppressedCall[], since: Since, each: boolean): Row[] {
  const rows = calls.map((call) => duplicateRow(call, since)).sort((a, b) => a.from - b.from);
  if (each) return rows;
  const bursts: Row[][] = [];
  for (const row of rows) {
    const last = bursts.at(-1)?.at(-1);
    if (last && last.label === row.label && row.from - last.from <= BURST_MS) bursts.at(-1)?.push(row);
    else bursts.push([row]);
  }
  return bursts.flatMap((burst) => (burst.length === 1 ? burst : [burstRow(burst)]));
}

function burstRow(burst: Row[]): Row {
  const [first, last] = [burst[0]!, burst.at(-1)!];
  const label = first.tone === "bad" ? `${burst.length} refused` : `${burst.length} duplicates stopped`;
  const detail = last.from > first.from ? `within ${duration(last.from - first.from)}` : "at once";
  return { ...first, label, detail, title: burst.map(({ title }) => title).join("\n"), to: last.from, marks: burst.map(({ from }) => from) };
}

/** Attempts take milliseconds and repeats come after days, so the axis is logarithmic. */
export function scale(rows: Row[]): (ms: number) => number {
  const end = endOf(rows);
  return (ms) => (Math.log10(1 + ms) / Math.log10(1 + end)) * 100;
}

const endOf = (rows: Row[]) => Math.max(10, ...rows.map(({ to }) => to));

const SECOND = 1000;
const DAY = 86_400 * SECOND;
const TICKS = [1, 10, 100, SECOND, 10 * SECOND, 60 * SECOND, 600 * SECOND, 3600 * SECOND, 6 * 3600 * SECOND, DAY, 7 * DAY, 30 * DAY, 365 * DAY];
/** The distance between ticks that can be read, in percent of the axis. */
const TICK_ROOM = 11;

/** Ticks from the accept to the end, far enough apart to be read. */
export function ticks(rows: Row[]): number[] {
  const at = scale(rows);
  const end = endOf(rows);
  const shown = [0];
  for (const tick of TICKS) if (at(tick) <= 100 - TICK_ROOM && at(tick) - at(shown.at(-1) ?? 0) >= TICK_ROOM) shown.push(tick);
  return [...shown, end];
}
