// The list of emails: filters, search, views. It pages with cursors and never counts, so it is quick with any number of rows.
import { useEffect, useRef, useState } from "preact/hooks";
import { useEvents } from "../../api/events";
import { usePages, type Pages } from "../../api/load";
import type { Email, EmailState, MailEvent, Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { Empty, Loading } from "../../components/Empty";
import { SendCommand } from "../../components/ExampleCommand";
import { SelectField, TextField } from "../../components/Field";
import { useShortcuts } from "../../components/keys";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { useTyped } from "../../components/typed";
import { FILTER_PATIENCE, NothingYet } from "../../components/Table";
import { WindowList } from "../../components/WindowList";
import { listQuery, readFilter, searchQuery, SINCE, STATES, writeFilter, type Filter } from "./filter";
import { EmailRow, HitRow } from "./Rows";
import { Views } from "./Views";

function rowHeight(): number {
  return window.matchMedia("(max-width: 40rem)").matches ? 68 : 44;
}

function Filters({ filter }: { filter: Filter }) {
  const input = useRef<HTMLInputElement>(null);
  const [q, setQ] = useTyped(filter.q, (value) => writeFilter({ q: value }));
  const [to, setTo] = useTyped(filter.to, (value) => writeFilter({ to: value }));
  const [key, setKey] = useTyped(filter.key, (value) => writeFilter({ key: value }));
  useShortcuts("Emails", [{ keys: "/", does: "search", run: () => input.current?.focus() }]);
  return (
    <search class="emails-filters">
      <TextField label="Search" type="search" value={q} onInput={setQ} placeholder="Words, subject:…, from:…, an id" inputRef={input} />
      <SelectField label="State" value={filter.state} onChange={(state) => writeFilter({ state })} options={[["", "Any state"], ...STATES.map((state): [string, string] => [state, state])]} />
      <TextField label="To" value={to} onInput={setTo} placeholder="eve@example.com" />
      <TextField label="Idempotency key" value={key} onInput={setKey} placeholder="order-4821" />
      <SelectField label="Accepted" value={filter.since} onChange={(since) => writeFilter({ since })} options={SINCE} />
    </search>
  );
}

function NoEmails({ filtered }: { filtered: boolean }) {
  if (filtered) {
    return (
      <Empty title="No email matches">
        <p>New mail can be searched about a second after it was accepted. Codes and bodies that are sealed are not found.</p>
        <Button onPress={() => writeFilter({ q: "", state: "", to: "", key: "", since: "" })}>Clear the filter</Button>
      </Empty>
    );
  }
  return (
    <Empty title="No email yet">
      <p>Every email that an agent sends appears here, with the duplicates that were stopped.</p>
      <SendCommand />
    </Empty>
  );
}

function SearchOff() {
  return (
    <Empty title="Search is turned off on this server">
      <p>State, recipient, key and time still filter the list. To search for words, add this to <code>mailonce.toml</code> and start the server again:</p>
      <Code label="the configuration of search" text={"[search]\nenabled = true"} />
      <Button onPress={() => writeFilter({ q: "" })}>Clear the search</Button>
    </Empty>
  );
}

function Listing<T>({ pages, keyOf, row, filtered }: { pages: Pages<T>; keyOf: (item: T) => string; row: (item: T) => preact.ComponentChildren; filtered: boolean }) {
  const { items, problem, loading, done, more, reload } = pages;
  if (items.length === 0 && problem) return <Problem problem={problem} retry={reload} />;
  if (items.length === 0 && loading) return <Loading lines={8} />;
  if (items.length === 0 && !done) return <NothingYet more={more} />;
  if (items.length === 0) return <NoEmails filtered={filtered} />;
  return (
    <>
      <WindowList label="Emails" items={items} keyOf={keyOf} rowHeight={rowHeight()} render={row} onEnd={() => void more()} />
      {problem && <Problem problem={problem} retry={more} />}
      <p class="muted small-text emails-end" role="status">{loading ? "Loading…" : done ? "These are all." : ""}</p>
    </>
  );
}

interface Change {
  state?: EmailState;
  duplicates: number;
}

/** Whether a new email belongs to the list. A list of recipients or of a later state cannot tell from the event, so it counts none. */
const mayMatch = (filter: Filter) => (event: MailEvent): boolean => {
  const { key = "", state = "" } = event.data as { key?: string; state?: string };
  return !filter.to.trim() && (!filter.state || filter.state === state) && (!filter.key.trim() || filter.key.trim() === key);
};

const APPLY_EVERY_MS = 250;

/** Applies changes to the rows that are loaded, a few times a second. Returns how many emails are new. */
function useLiveList(pages: Pages<Email>, isWanted: (event: MailEvent) => boolean): [fresh: number, clear: () => void] {
  const [fresh, setFresh] = useState(0);
  const changes = useRef(new Map<string, Change>());
  const timer = useRef(0);
  const accepted = useRef(0);
  const apply = () => {
    timer.current = 0;
    const { current } = changes;
    changes.current = new Map();
    setFresh((count) => count + accepted.current);
    accepted.current = 0;
    pages.update((items) => items.map((email) => applyChange(email, current.get(email.id))));
  };
  useEvents("email.*", (event) => {
    if (event.type === "email.accepted" || event.type === "email.held") accepted.current += Number(isWanted(event));
    else changes.current.set(event.about.id, merge(changes.current.get(event.about.id), event));
    timer.current ||= window.setTimeout(apply, APPLY_EVERY_MS);
  });
  useEffect(() => () => window.clearTimeout(timer.current), []);
  return [fresh, () => setFresh(0)];
}

function merge(before: Change = { duplicates: 0 }, event: MailEvent): Change {
  const { state, call_count: calls } = event.data as { state?: EmailState; call_count?: number };
  return { state: state ?? before.state, duplicates: before.duplicates + (event.type === "email.duplicate" ? calls ?? 1 : 0) };
}

const applyChange = (email: Email, change: Change | undefined): Email =>
  change ? { ...email, state: change.state ?? email.state, suppressed: email.suppressed + change.duplicates } : email;

function ByList({ filter }: { filter: Filter }) {
  const [query] = useState(() => listQuery(filter));
  const pages = usePages<Email>("/v1/emails", query, FILTER_PATIENCE);
  const [fresh, clearFresh] = useLiveList(pages, mayMatch(filter));
  const showFresh = async () => {
    await pages.reload();
    clearFresh();
    window.scrollTo(0, 0);
  };
  const filtered = Object.values(filter).some(Boolean);
  return (
    <>
      {fresh > 0 && <div class="emails-fresh" role="status"><Button class="small" onPress={showFresh}>{fresh === 1 ? "1 new email" : `${fresh} new emails`}: show</Button></div>}
      <Listing pages={pages} keyOf={({ id }) => id} row={(email) => <EmailRow email={email} />} filtered={filtered} />
    </>
  );
}

function BySearch({ filter }: { filter: Filter }) {
  const [query] = useState(() => searchQuery(filter));
  const pages = usePages<Schema["SearchHitBody"]>("/v1/search", query);
  if (pages.problem?.code === "search_disabled") return <SearchOff />;
  return <Listing pages={pages} keyOf={({ id }) => id} row={(hit) => <HitRow hit={hit} />} filtered />;
}

export function Emails() {
  const filter = readFilter();
  return (
    <>
      <PageHead title="Emails" intro="Everything that was accepted, newest first." />
      <Views />
      <Filters filter={filter} />
      {filter.q.trim() ? <BySearch filter={filter} key={JSON.stringify(filter)} /> : <ByList filter={filter} key={JSON.stringify(filter)} />}
    </>
  );
}
