// The API lists the audit log oldest first; people want the newest entries. This reads it backwards, in windows of numbers.
import { get } from "../../api/client";
import type { Schema } from "../../api/types";

export type AuditEntry = Schema["AuditEntryBody"];
type AuditPage = Schema["AuditPageBody"];

export interface AuditFilter {
  action: string;
  actor: string;
  about: string;
}

const WINDOW = 200;
const ENOUGH = 50;
/** A filter that matches little stops after so many windows; the button goes on. */
const MAX_WINDOWS = 10;

export interface OlderEntries {
  entries: AuditEntry[];
  /** Where to go on, or null at the start of the log. */
  before: number | null;
  head: Schema["ChainLinkBody"];
}

/** Entries with numbers below `before`, newest first. */
export async function readOlder(filter: AuditFilter, before: number | null, signal?: AbortSignal): Promise<OlderEntries> {
  const { head, start } = await get<AuditPage>("/v1/audit", { limit: 1 }, { signal });
  const entries: AuditEntry[] = [];
  let end = before ?? head.seq + 1;
  for (let round = 0; round < MAX_WINDOWS && end > start.seq + 1 && entries.length < ENOUGH; round += 1) {
    const from = Math.max(start.seq, end - 1 - WINDOW);
    const page = await get<AuditPage>("/v1/audit", { ...filter, after: from, limit: WINDOW }, { signal });
    const limit = end;
    entries.push(...page.data.filter(({ seq }) => seq < limit).reverse());
    end = from + 1;
  }
  return { entries, before: end > start.seq + 1 ? end : null, head };
}
