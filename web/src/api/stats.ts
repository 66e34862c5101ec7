// The statistics of a span of time, for the overview and the duplicates.
import { get } from "./client";
import { useRefreshOn } from "./events";
import { useLoad, type Loaded } from "./load";
import type { Stats } from "./types";

/** The server counts all emails of the span for each answer, so busy mail must not ask for it all the time. */
const STATS_INTERVAL_MS = 10_000;

export function useStats(hours: string): Loaded<Stats> {
  const loaded = useLoad((signal) => get<Stats>("/v1/stats", { hours }, { signal }), [hours]);
  useRefreshOn("email.*", () => void loaded.reload(), { everyMs: STATS_INTERVAL_MS });
  return loaded;
}
