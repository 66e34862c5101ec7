// The table of pages. A page adds itself here and nowhere else: the router, the navigation and the shortcuts read it.
import type { ComponentType } from "preact";
import { EmailPage } from "./email/Email";
import { Emails } from "./emails/Emails";
import { Home } from "./home/Home";
import { Live } from "./live/Live";
import { DecidePage } from "./needs-you/Decide";
import { NeedsYou } from "./needs-you/NeedsYou";
import { setupPages } from "./setup";
import { Stops } from "./stops/Stops";
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
  { path: "/stops", title: "Stop and budgets", page: Stops, nav: { group: "Safety", label: "Stop and budgets", key: "b" } },
  { path: "/webhooks", title: "Webhooks", page: Webhooks, nav: { group: "Installation", label: "Webhooks", key: "w" } },
  { path: "/webhooks/:id", title: "Endpoint", page: EndpointPage },
  ...setupPages,
];

export const navGroups = (): { group: NavGroup; entries: PageEntry[] }[] =>
  GROUPS.map((group) => ({ group, entries: pages.filter((entry) => entry.nav?.group === group) })).filter(({ entries }) => entries.length > 0);
