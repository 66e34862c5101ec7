// How many questions wait for a person, by reason. The navigation and the first page show it.
import { computed, signal } from "@preact/signals";
import { get } from "./client";
import { onEvents } from "./events";
import { isMissing } from "./problem";
import type { Escalation, EscalationReason, Page, Stats } from "./types";

export type Counts = Partial<Record<EscalationReason, number>>;

export const needsYou = signal<Counts | null>(null);
export const needsYouTotal = computed(() => Object.values(needsYou.value ?? {}).reduce((sum, count) => sum + count, 0));

/** Servers without /v1/stats are asked for the first 100 open questions. */
async function countList(): Promise<Counts> {
  const { data } = await get<Page<Escalation>>("/v1/escalations", { state: "open", limit: 100 });
  const counts: Counts = {};
  for (const { reason } of data) counts[reason] = (counts[reason] ?? 0) + 1;
  return counts;
}

async function count(): Promise<Counts> {
  try {
    return (await get<Stats>("/v1/stats", { hours: 0 })).needs_you;
  } catch (error) {
    if (isMissing(error)) return countList();
    throw error;
  }
}

export async function refreshNeedsYou(): Promise<void> {
  // A failed count leaves the last one; the page that needs the data shows the problem.
  needsYou.value = await count().catch(() => needsYou.value);
}

let timer = 0;

/** Counts now, and soon after each event about an escalation. */
export function followNeedsYou(): () => void {
  void refreshNeedsYou();
  return onEvents("escalation.*", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => void refreshNeedsYou(), 200);
  });
}
