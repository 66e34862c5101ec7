// Loads a list again when something in it changed.
import { useRefreshOn } from "./events";
import type { Pages } from "./load";
import type { MailEvent } from "./types";

/** A reader who has loaded more than the first page keeps the place: loading again would throw the reader back to it. */
export function useRefreshPages<T>(types: string, pages: Pages<T>, firstPage: number, matches?: (event: MailEvent) => boolean): void {
  useRefreshOn(types, () => {
    if (pages.items.length <= firstPage) void pages.reload();
  }, { matches });
}
