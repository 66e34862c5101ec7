// The open questions in the order in which they are shown: unknown outcomes first, because somebody waits for them.
import { signal } from "@preact/signals";
import { get, intention, post } from "../../api/client";
import { needsYou, refreshNeedsYou } from "../../api/needs-you";
import type { Decision, Escalation, EscalationReason, Page } from "../../api/types";
import { GROUPS, reasonsOf, type Group } from "./reasons";

/** How many questions of one reason are loaded. Those after them follow as soon as some are decided. */
const PER_REASON = 50;

/** The last queue that was shown, so that the page of one question can lead to the next. */
export const queue = signal<Escalation[]>([]);

async function ofReason(reason: EscalationReason, signalAbort?: AbortSignal): Promise<Escalation[]> {
  const page = await get<Page<Escalation>>("/v1/escalations", { state: "open", reason, limit: PER_REASON }, { signal: signalAbort });
  return page.data;
}

export async function loadQueue(group: Group | null, signalAbort?: AbortSignal): Promise<Escalation[]> {
  await refreshNeedsYou();
  const counts = needsYou.value ?? {};
  const reasons = (group ? [group] : GROUPS).flatMap(reasonsOf).filter((reason) => (counts[reason] ?? 0) > 0);
  const lists = await Promise.all(reasons.map((reason) => ofReason(reason, signalAbort)));
  queue.value = lists.flat();
  return queue.value;
}

/** One key for each question and decision, so that pressing twice decides once. */
const keys = new Map<string, string>();

function keyOf(escalation: Escalation, decision: Omit<Decision, "rev">): string {
  const name = `${escalation.id} ${escalation.rev} ${JSON.stringify(decision)}`;
  const key = keys.get(name) ?? intention();
  keys.set(name, key);
  return key;
}

/** Decides a question for what was seen: the digest makes the server refuse if anything else would be sent. */
export async function decide(escalation: Escalation, decision: Omit<Decision, "rev" | "digest">): Promise<Escalation> {
  const seen = { ...decision, digest: escalation.email?.digest ?? undefined };
  const answer = await post<Escalation>(`/v1/escalations/${escalation.id}/resolve`, { ...seen, rev: escalation.rev }, { key: keyOf(escalation, seen) });
  queue.value = queue.value.filter(({ id }) => id !== escalation.id);
  void refreshNeedsYou();
  return answer;
}

/** Where to go after a decision: the next question, or the queue. */
export function nextPath(id: string): string {
  const index = queue.value.findIndex((escalation) => escalation.id === id);
  const next = queue.value[index + 1] ?? queue.value.find((escalation) => escalation.id !== id);
  return next ? `/needs-you/${next.id}` : "/needs-you";
}
