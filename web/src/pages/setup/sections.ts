// The sections of the set-up, in the order of the links.
export const SECTIONS = {
  connect: { label: "Connect", intro: "Code and configuration for this server, ready to copy." },
  domains: { label: "Domains", intro: "Domains that the team sends from, with the DNS records that prove it and sign mail." },
  transports: { label: "Transports", intro: "The ways by which email leaves, and whether they work." },
  "api-keys": { label: "API keys", intro: "Credentials of programs. Give each agent a key that can do no more than it needs." },
  rules: { label: "Rules", intro: "What may go out, what comes in, and what a person approves first." },
  people: { label: "People", intro: "Who may look and decide, and where questions reach them." },
  metrics: { label: "Metrics", intro: "What this server counts, sampled while the page is open. Prometheus reads the same at /metrics." },
  audit: { label: "Audit log", intro: "Every administrative act and every decision of a person, as a hash chain." },
  settings: { label: "Settings", intro: "How the team's mail is guarded, and how long it is kept." },
} as const;

export type SectionName = keyof typeof SECTIONS;
