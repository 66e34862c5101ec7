// The address that examples are sent from.
import { get } from "../../api/client";
import { useLoad } from "../../api/load";
import type { Page, Schema } from "../../api/types";

/** The first inbox of the team, or an example while there is none. */
export function useFirstInbox(): string {
  const { data } = useLoad((signal) => get<Page<Schema["InboxBody"]>>("/v1/inboxes", { limit: 1 }, { signal }), []);
  return data?.data[0]?.address ?? "agent@example.com";
}
