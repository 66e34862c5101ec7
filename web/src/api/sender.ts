// The address in examples: one that the team may send from and receive at.
import { get } from "./client";
import { useLoad } from "./load";
import type { Page, Schema } from "./types";

/** Of a team without inboxes and domains. */
const PLACEHOLDER = "agent@example.com";

export interface Sender {
  address: string;
  /** Whether mail to it arrives in an inbox. */
  receives: boolean;
}

async function findSender(signal: AbortSignal): Promise<Sender> {
  const inboxes = await get<Page<Schema["InboxBody"]>>("/v1/inboxes", { limit: 20 }, { signal });
  // Agents create inboxes for one task, which end soon.
  const inbox = inboxes.data.find(({ expires_at: end }) => !end) ?? inboxes.data[0];
  if (inbox) return { address: inbox.address, receives: true };
  const domains = await get<Schema["DomainPage"]>("/v1/domains", { limit: 1 }, { signal });
  const domain = domains.data[0]?.name;
  return { address: domain ? `agent@${domain}` : PLACEHOLDER, receives: false };
}

/** Null while it is not known yet. */
export function useSender(): Sender | null {
  const { data, problem } = useLoad(findSender, []);
  return data ?? (problem ? { address: PLACEHOLDER, receives: false } : null);
}
