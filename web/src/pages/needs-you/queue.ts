// The open questions in the order in which they are shown: unknown outcomes first, because somebody waits for them.
import { signal } from "@preact/signals";
import { get, intention, post } from "../../api/client";
import { needsYou, refreshNeedsYou } from "../../api/needs-you";
import { onTeamChange } from "../../api/team-data";
import type { Decision, Escalation, EscalationReason, Page } from "../../api/types";
import { GROUPS, reasonsOf, type Group } from "./reasons";

/** How many questions of one reason are loaded. Those after them follow as soon as some are decided. */
const PER_REASON = 50;

/** The last queue that was shown, so that the page of one question can lead to the next. */
export const queue = signal<Escalation[]>([]);

/** Which question followed a decided one in the queue. */
const followers = new Map<string, string>();

onTeamChange(() => {
  queue.value = [];
  followers.clear();
});

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
  leaveQueue(escalation.id);
  void refreshNeedsYou();
  return answer;
}

function leaveQueue(id: string): void {
  const follower = queue.value[indexOf(id) + 1];
  if (indexOf(id) >= 0 && follower) followers.set(id, follower.id);
  queue.value = queue.value.filter((escalation) => escalation.id !== id);
}

const indexOf = (id: string): number => queue.value.findIndex((escalation) => escalation.id === id);

/** The question after this one, also when this one and some after it are decided. */
function followerOf(id: string): Escalation | undefined {
  const index = indexOf(id);
  if (index >= 0) return queue.value[index + 1];
  const next = followers.get(id);
  return next === undefined ? undefined : (queue.value[indexOf(next)] ?? followerOf(next));
}

/** Where to go after a decision: the next question, those that were skipped, or the queue. */
export function nextPath(id: string): string {
  const next = followerOf(id) ?? queue.value.find((escalation) => escalation.id !== id);
  return next ? `/needs-you/${next.id}` : "/needs-you";
}
