// The pages of the set-up, for the table of pages.
import type { PageEntry } from "..";
import { adminOnly } from "./AdminOnly";
import { ApiKeys } from "./ApiKeys";
import { Audit } from "./Audit";
import { Connect } from "./Connect";
import { Domains } from "./Domains";
import { Metrics } from "./Metrics";
import { PeopleOrConnections } from "./People";
import { Rules } from "./Rules";
import { SECTIONS, type SectionName } from "./sections";
import { Settings } from "./Settings";
import { TransportSection } from "./Transports";

const PAGES: Record<SectionName, PageEntry["page"]> = {
  connect: Connect, transports: TransportSection, rules: Rules, metrics: Metrics, settings: Settings,
  domains: adminOnly("domains", Domains), "api-keys": adminOnly("api-keys", ApiKeys), people: PeopleOrConnections, audit: adminOnly("audit", Audit),
};

export const setupPages: PageEntry[] = [
  { path: "/setup", title: "Set-up", page: Connect, nav: { group: "Installation", label: "Set-up", key: "s" } },
  ...(Object.keys(SECTIONS) as SectionName[]).map((name) => ({ path: `/setup/${name}`, title: SECTIONS[name].label, page: PAGES[name] })),
];
