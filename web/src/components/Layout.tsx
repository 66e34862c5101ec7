// The frame of every page: navigation, who is signed in, the page itself, messages.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { streamState } from "../api/events";
import { needsYouTotal } from "../api/needs-you";
import type { Session } from "../api/types";
import { navGroups, type PageEntry } from "../pages";
import { navigate, path } from "../router";
import { signOut, switchTeam } from "../session/session";
import { Button } from "./Button";
import { Confirm } from "./Dialog";
import { Help, showHelp } from "./Help";
import { useShortcuts } from "./keys";
import { SelectField } from "./Field";
import { ThemeToggle, toggleTheme } from "./ThemeToggle";
import { reportProblem, Toasts } from "./Toast";

const STREAM_WORDS = { live: "Live", connecting: "Connecting…", waiting: "Reconnecting…", closed: "Paused" };

/** `/emails` is current on `/emails/1`; `/` only on itself. */
const isCurrent = (entry: PageEntry, pathname: string) =>
  entry.path === "/" ? pathname === "/" : pathname === entry.path || pathname.startsWith(`${entry.path}/`);

function NavLink({ entry }: { entry: PageEntry }) {
  const count = entry.path === "/needs-you" ? needsYouTotal.value : 0;
  return (
    <li>
      <a href={entry.path} aria-current={isCurrent(entry, path.value) ? "page" : undefined}>
        {entry.nav?.label}
        {count > 0 && <span class="count">{count > 99 ? "99+" : count}<span class="visually-hidden"> waiting</span></span>}
      </a>
    </li>
  );
}

function Navigation() {
  return (
    <nav aria-label="Pages">
      {navGroups().map(({ group, entries }) => (
        <div key={group}>
          {group && <h2>{group}</h2>}
          <ul>{entries.map((entry) => <NavLink entry={entry} key={entry.path} />)}</ul>
        </div>
      ))}
      <div>
        <ul><li><a href="/docs" target="_blank" rel="noreferrer">API reference</a></li></ul>
      </div>
    </nav>
  );
}

function Account({ session }: { session: Session }) {
  const teams = [session.team, ...session.other_teams];
  const change = (team: string) => void switchTeam(team).then(() => navigate("/"), reportProblem);
  return (
    <div class="account">
      {teams.length > 1
        ? <SelectField label="Team" value={session.team.id} onChange={change} options={teams.map(({ id, name }) => [id, name])} />
        : <p class="muted">Team {session.team.name}</p>}
      <p><strong>{session.person.name}</strong> <span class="muted">{session.person.role}</span></p>
      <div class="row">
        <ThemeToggle />
        <Button kind="quiet" class="small" onPress={signOut}>Sign out</Button>
      </div>
    </div>
  );
}

function TopBar({ open, toggle }: { open: boolean; toggle: () => void }) {
  return (
    <div class="top-bar">
      <a class="brand" href="/"><img src="/assets/icon.svg" alt="" width={22} height={22} />mailonce</a>
      <span class={`stream ${streamState.value}`} role="status"><i aria-hidden="true" />{STREAM_WORDS[streamState.value]}</span>
      <button type="button" class="button quiet small help-button" onClick={showHelp} aria-label="Keyboard shortcuts">?</button>
      <button type="button" class="button small menu-button" aria-expanded={open} aria-controls="side" onClick={toggle}>
        Menu{needsYouTotal.value > 0 && <span class="count">{needsYouTotal.value}</span>}
      </button>
    </div>
  );
}

function useNavigationKeys(): void {
  const pages = navGroups().flatMap(({ entries }) => entries).filter((entry) => entry.nav?.key);
  useShortcuts("Everywhere", [
    ...pages.map((entry) => ({ keys: `g ${entry.nav?.key}`, does: `go to ${entry.nav?.label}`, run: () => navigate(entry.path) })),
    { keys: "t", does: "change the theme", run: toggleTheme },
    { keys: "?", does: "show this help", run: showHelp },
  ], true);
}

export function Layout({ session, children }: { session: Session; children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  useNavigationKeys();
  return (
    <div class="layout">
      <a class="skip" href="#main">Skip to the page</a>
      <header class={open ? "side open" : "side"}>
        <TopBar open={open} toggle={() => setOpen(!open)} />
        <div class="side-body" id="side" onClick={(event) => event.target instanceof Element && event.target.closest("a") && setOpen(false)}>
          <Navigation />
          <Account session={session} />
        </div>
      </header>
      <main id="main" tabIndex={-1}>{children}</main>
      <Toasts />
      <Confirm />
      <Help />
    </div>
  );
}
