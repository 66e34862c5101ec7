// What the reasons of escalations mean, for people.
import type { Escalation, EscalationReason } from "../../api/types";

export type Group = "unknown" | "held" | "asked";

export const GROUP_LABELS: Record<Group, string> = { unknown: "Unknown", held: "Held", asked: "Asked" };

interface ReasonWords {
  group: Group;
  label: string;
  why: string;
}

export const REASONS: Record<EscalationReason, ReasonWords> = {
  unknown: { group: "unknown", label: "Outcome unknown", why: "The next hop may have this email. There is no safe automatic retry left." },
  claim_unknown: { group: "unknown", label: "Claim unknown", why: "The worker was lost after it began. The side effect may have happened." },
  approval: { group: "held", label: "Approval", why: "A rule wants a person to look first." },
  looks_duplicate: { group: "held", label: "Looks like a duplicate", why: "It looks like an email that was just sent." },
  overlaps: { group: "held", label: "Overlapping recipients", why: "Its intent already went to some of its recipients." },
  cap: { group: "held", label: "Too many replies", why: "The thread or the recipient got too many replies." },
  budget: { group: "held", label: "Budget", why: "A budget has no room. It leaves by itself when there is room." },
  asked: { group: "asked", label: "Question", why: "An agent asks." },
  loop: { group: "asked", label: "Loop", why: "A reply to one of your own agents or to a machine was refused." },
  unanswered: { group: "asked", label: "Unanswered", why: "A message was given to agents five times and none answered it." },
  orphaned: { group: "asked", label: "Missing transport", why: "Email waits for a transport that no node has." },
};

export const GROUPS: Group[] = ["unknown", "held", "asked"];

export const groupOf = (escalation: Escalation): Group => REASONS[escalation.reason].group;

export const reasonsOf = (group: Group): EscalationReason[] =>
  (Object.keys(REASONS) as EscalationReason[]).filter((reason) => REASONS[reason].group === group);

/** What a question is called: the agent's own words, or what it is about. */
export const titleOf = (escalation: Escalation): string =>
  escalation.about.question ?? escalation.email?.subject ?? (escalation.about.transport ? `Transport ${escalation.about.transport}` : REASONS[escalation.reason].label);
