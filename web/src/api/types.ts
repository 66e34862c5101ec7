// Short names for the bodies of the API.
import type { components } from "./schema";

export type Schema = components["schemas"];

export type Email = Schema["EmailBody"];
export type EmailDetail = Schema["EmailDetailBody"];
export type EmailState = Email["state"];
export type Escalation = Schema["EscalationBody"];
export type EscalationReason = Escalation["reason"];
export type Decision = Schema["DecisionBody"];
export type Claim = Schema["ClaimBody"];
export type MailEvent = Schema["EventBody"];
export type Session = Schema["SessionBody"];
export type Scope = Session["scopes"][number];

/** A page of a list: pass `next_cursor` as `cursor` to get the next one. */
export interface Page<T> {
  data: T[];
  next_cursor?: string | null;
}

/** `GET /v1/stats?hours=24`. */
export type Stats = Schema["StatsBody"];
