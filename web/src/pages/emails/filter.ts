// The filter of the list. It lives in the query of the address, so that a view can be shared and survives a reload.
import type { Query } from "../../api/client";
import { search, setSearch } from "../../router";

export interface Filter {
  q: string;
  state: string;
  to: string;
  key: string;
  since: string;
}

export const STATES = ["queued", "sending", "sent", "delivered", "bounced", "complained", "failed", "unknown", "held", "scheduled", "cancelled", "abandoned"];
export const SINCE: [string, string][] = [["", "Any time"], ["1", "Last hour"], ["24", "Last 24 hours"], ["168", "Last 7 days"], ["720", "Last 30 days"]];

export function readFilter(): Filter {
  const value = (name: string) => search.value.get(name) ?? "";
  return { q: value("q"), state: value("state"), to: value("to"), key: value("key"), since: value("since") };
}

export const writeFilter = (changes: Partial<Filter>): void => setSearch(changes);

/** Rounded to the minute, so that the back button finds the rows of a moment ago. */
function sinceTime(hours: string): string | undefined {
  const number = Number(hours);
  return number > 0 ? new Date(Math.floor(Date.now() / 60_000) * 60_000 - number * 3_600_000).toISOString() : undefined;
}

/** Without words the list is asked, which needs no index. A time span begins where it was chosen, so keep the query while the filter is the same. */
export const listQuery = (filter: Filter): Query => ({ state: filter.state, to: filter.to.trim(), key: filter.key.trim(), since: sinceTime(filter.since), limit: 100 });

const quoted = (value: string) => (/[\s"]/.test(value) ? `"${value.replaceAll('"', "")}"` : value);

/** With words the filters become terms of the query. */
export function searchQuery(filter: Filter): Query {
  const since = sinceTime(filter.since);
  const terms = [
    filter.q.trim(), filter.state && `state:${filter.state}`, filter.to.trim() && `to:${quoted(filter.to.trim())}`,
    filter.key.trim() && `key:${quoted(filter.key.trim())}`, since && `after:${since}`,
  ];
  return { q: terms.filter(Boolean).join(" "), in: "emails", limit: 50 };
}
