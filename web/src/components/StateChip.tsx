// A state as a chip. The color repeats what the word says, so that nobody has to tell colors apart.
const TONES: Record<string, string> = {
  accepted: "good", sent: "good", delivered: "good", resolved: "good", answered: "good", completed: "good", verified: "good", active: "good", running: "good", closed: "good", enabled: "good",
  deferred: "wait", held: "wait", unknown: "wait", open: "wait", unanswered: "wait", claim_unknown: "wait", half_open: "wait", paused: "wait", pending: "wait",
  failed: "bad", bounced: "bad", complained: "bad", dead: "bad", refused: "bad", disabled: "bad", revoked: "bad", stopped: "bad",
  sending: "busy", queued: "busy", scheduled: "busy", leased: "busy", claimed: "busy", begun: "busy",
};

export type Tone = "good" | "wait" | "bad" | "busy" | "plain";

export function StateChip({ state, tone }: { state: string; tone?: Tone }) {
  return <span class={`chip ${tone ?? TONES[state] ?? "plain"}`}>{state.replaceAll("_", " ")}</span>;
}
