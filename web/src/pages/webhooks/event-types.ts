// Event types of endpoints, for people.

export const FAMILIES: [type: string, label: string][] = [
  ["email.*", "Emails: accepted, sent, delivered, bounced, unknown, duplicates"],
  ["message.*", "Messages received, answered, forwarded"],
  ["delivery.*", "Arrivals that were duplicates or refused"],
  ["artifact.*", "Codes and links"],
  ["thread.*", "Threads: leases and caps"],
  ["escalation.*", "Questions that wait for a person"],
  ["handoff.*", "Handoffs that lost their transport"],
  ["transport.*", "Circuit breakers"],
  ["stop.*", "Stops"],
  ["claim.*", "Claims"],
];

/** Types that no family above covers, such as `endpoint.disabled`. They are kept when an endpoint is edited. */
export const otherTypes = (events: string[]): string[] =>
  events.filter((type) => type !== "*" && !FAMILIES.some(([family]) => family === type));

const PAGES: Record<string, string> = { email: "/emails/", message: "/messages/", thread: "/threads/", escalation: "/needs-you/" };

/** The page of the object that an event is about. */
export function pageOf(type: string, about: string): string | null {
  const page = PAGES[type.split(".")[0] ?? ""];
  return page ? page + encodeURIComponent(about) : null;
}
