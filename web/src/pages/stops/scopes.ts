// The five levels of stops, and the names of what they cover.
import { get } from "../../api/client";
import { getAll } from "../../api/load";
import type { Page, Schema } from "../../api/types";
import { may } from "../../session/session";

export type Stop = Schema["StopBody"];
export type StopScope = Schema["StopScopeBody"];
export type Budget = Schema["BudgetBody"];
export type Transports = Schema["TransportPage"];
export type Level = "installation" | "transport" | "team" | "inbox" | "api_key";

export interface LevelWords {
  level: Level;
  label: string;
  covers: string;
  needs: "operator" | "admin";
}

export const LEVELS: LevelWords[] = [
  { level: "installation", label: "Installation", covers: "Every email of every team", needs: "operator" },
  { level: "transport", label: "Transport", covers: "Everything that one transport hands on, for all teams", needs: "operator" },
  { level: "team", label: "Team", covers: "Every email of this team", needs: "admin" },
  { level: "inbox", label: "Inbox", covers: "Email from the address of one inbox", needs: "admin" },
  { level: "api_key", label: "API key", covers: "Email that was sent with one API key", needs: "admin" },
];

export const levelOf = (scope: StopScope): Level =>
  scope.installation ? "installation" : scope.transport ? "transport" : scope.team ? "team" : scope.inbox ? "inbox" : "api_key";

/** What can be stopped or limited, by id. */
export interface Names {
  inboxes: [id: string, name: string][];
  apiKeys: [id: string, name: string][];
}

/** Only administrators may list API keys; others see ids in the place of names. */
export async function loadNames(signal: AbortSignal): Promise<Names> {
  const listApiKeys = async () => (await get<Page<Schema["ApiKeyBody"]>>("/v1/api-keys", {}, { signal })).data;
  const [inboxes, apiKeys] = await Promise.all([getAll<Schema["InboxBody"]>("/v1/inboxes", signal), may("admin") ? listApiKeys() : []]);
  return {
    inboxes: inboxes.map(({ id, address }) => [id, address]),
    apiKeys: apiKeys.filter(({ revoked_at: revoked }) => !revoked).map(({ id, name }) => [id, name]),
  };
}

const nameOf = (list: [string, string][], id: string) => list.find(([other]) => other === id)?.[1] ?? id;

/** What a scope covers, in words. */
export function scopeName(scope: StopScope & Schema["BudgetScopeBody"], names: Names): string {
  if (scope.installation) return "The whole installation";
  if (scope.transport) return scope.transport;
  if (scope.team) return "The whole team";
  if (scope.inbox) return nameOf(names.inboxes, scope.inbox);
  if (scope.api_key) return `API key ${nameOf(names.apiKeys, scope.api_key)}`;
  if (scope.recipient) return scope.recipient === "any" ? "Each recipient" : `To ${scope.recipient}`;
  if (scope.recipient_domain) return scope.recipient_domain === "any" ? "Each recipient domain" : `To @${scope.recipient_domain}`;
  return "Nothing";
}
