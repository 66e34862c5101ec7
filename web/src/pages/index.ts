// The table of pages. A page adds itself here and nowhere else: the router, the navigation and the shortcuts read it.
import type { ComponentType } from "preact";
import { Duplicates } from "./duplicates/Duplicates";
import { EmailPage } from "./email/Email";
import { Emails } from "./emails/Emails";
import { Home } from "./home/Home";
import { InboxPage } from "./inboxes/Inbox";
import { Inboxes } from "./inboxes/Inboxes";
import { KeyPage } from "./keys/Key";
import { Keys } from "./keys/Keys";
import { Live } from "./live/Live";
import { MessagePage } from "./message/Message";
import { DecidePage } from "./needs-you/Decide";
import { NeedsYou } from "./needs-you/NeedsYou";
import { setupPages } from "./setup";
import { Stops } from "./stops/Stops";
import { ThreadPage } from "./threads/Thread";
import { Threads } from "./threads/Threads";
import { EndpointPage } from "./webhooks/EndpointPage";
import { Webhooks } from "./webhooks/Webhooks";

export interface PageProps {
  /** The values of `:name` parts of the path. */
  params: Record<string, string>;
}

export interface PageEntry {
  /** Such as `/emails/:id`. */
  path: string;
  /** For the title of the window. */
  title: string;
  page: ComponentType<PageProps>;
  /** In the navigation: its group, its label, and the key after `g` that opens it. */
  nav?: { group: NavGroup; label: string; key?: string };
}

export const GROUPS = ["", "Outbound", "Inbound", "Safety", "Installation"] as const;
export type NavGroup = (typeof GROUPS)[number];

export const pages: PageEntry[] = [
  { path: "/", title: "Overview", page: Home, nav: { group: "", label: "Overview", key: "o" } },
  { path: "/needs-you", title: "Needs you", page: NeedsYou, nav: { group: "", label: "Needs you", key: "n" } },
  { path: "/needs-you/:id", title: "Question", page: DecidePage },
  { path: "/live", title: "Live", page: Live, nav: { group: "", label: "Live", key: "l" } },
  { path: "/emails", title: "Emails", page: Emails, nav: { group: "Outbound", label: "Emails", key: "e" } },
  { path: "/emails/:id", title: "Email", page: EmailPage },
  { path: "/duplicates", title: "Duplicates", page: Duplicates, nav: { group: "Outbound", label: "Duplicates", key: "d" } },
  { path: "/keys", title: "Keys", page: Keys, nav: { group: "Outbound", label: "Keys", key: "k" } },
  { path: "/keys/:key", title: "Key", page: KeyPage },
  { path: "/inboxes", title: "Inboxes", page: Inboxes, nav: { group: "Inbound", label: "Inboxes", key: "i" } },
  { path: "/inboxes/:id", title: "Inbox", page: InboxPage },
  { path: "/messages/:id", title: "Message", page: MessagePage },
  { path: "/threads", title: "Threads", page: Threads, nav: { group: "Inbound", label: "Threads", key: "r" } },
  { path: "/threads/:id", title: "Thread", page: ThreadPage },
  { path: "/stops", title: "Stop and budgets", page: Stops, nav: { group: "Safety", label: "Stop and budgets", key: "b" } },
  { path: "/webhooks", title: "Webhooks", page: Webhooks, nav: { group: "Installation", label: "Webhooks", key: "w" } },
  { path: "/webhooks/:id", title: "Endpoint", page: EndpointPage },
  ...setupPages,
];

export const navGroups = (): { group: NavGroup; entries: PageEntry[] }[] =>
  GROUPS.map((group) => ({ group, entries: pages.filter((entry) => entry.nav?.group === group) })).filter(({ entries }) => entries.length > 0);
