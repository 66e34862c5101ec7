// Who is signed in. Every page is shown only when somebody is.
import { signal } from "@preact/signals";
import { configureClient, del, get, patch } from "../api/client";
import { startEvents, stopEvents } from "../api/events";
import { followNeedsYou, needsYou } from "../api/needs-you";
import { asProblem, type ApiProblem } from "../api/problem";
import { clearTeamData } from "../api/team-data";
import type { Scope, Session } from "../api/types";

export type SessionState =
  | { status: "loading" }
  | { status: "in"; session: Session }
  | { status: "out" }
  | { status: "failed"; problem: ApiProblem };

export const sessionState = signal<SessionState>({ status: "loading" });
let stopCounting: () => void = () => undefined;

const signedOut = () => {
  stopEvents();
  stopCounting();
  clearTeamData();
  sessionState.value = { status: "out" };
};

function enter(session: Session): void {
  configureClient(session.csrf_token, signedOut);
  stopEvents();
  stopCounting();
  needsYou.value = null;
  clearTeamData();
  sessionState.value = { status: "in", session };
  startEvents();
  stopCounting = followNeedsYou();
}

export async function loadSession(): Promise<void> {
  configureClient("", signedOut);
  try {
    enter(await get<Session>("/v1/session"));
  } catch (error) {
    const problem = asProblem(error);
    if (problem.status !== 401) sessionState.value = { status: "failed", problem };
  }
}

/** Acts in another team of the same sign-in. Every page loads again, because all data belongs to a team. */
export async function switchTeam(team: string): Promise<void> {
  const before = sessionState.value;
  const change = patch("/v1/session", { team });
  // Requests with the cookie of the earlier session are refused from now on, which signs nobody out.
  configureClient("", () => undefined);
  try {
    await change;
  } catch (error) {
    if (before.status === "in") configureClient(before.session.csrf_token, signedOut);
    throw error;
  }
  await loadSession();
}

export async function signOut(): Promise<void> {
  await del("/v1/session");
  signedOut();
}

/** Whether the person who is signed in may do what needs one of these scopes. */
export function may(...scopes: Scope[]): boolean {
  const state = sessionState.value;
  return state.status === "in" && scopes.some((scope) => state.session.scopes.includes(scope));
}
