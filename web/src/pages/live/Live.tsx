// Everything that happens in the team, as it happens.
import { useRef } from "preact/hooks";
import { streamState } from "../../api/events";
import { Button } from "../../components/Button";
import { SendCommand } from "../../components/ExampleCommand";
import { Empty, Loading } from "../../components/Empty";
import { SelectField, TextField } from "../../components/Field";
import { useShortcuts } from "../../components/keys";
import { List } from "../../components/List";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { search, setSearch } from "../../router";
import { rowOf } from "./EventRow";
import { contains } from "./event-words";
import { MAX_ROWS, useRecentEvents, type Recent } from "./recent";

const KINDS: [value: string, label: string][] = [
  ["", "All events"], ["email.duplicate", "Duplicates"], ["email", "Emails"], ["message", "Messages"], ["delivery", "Deliveries"], ["artifact", "Codes and links"],
  ["thread", "Threads"], ["reply", "Refused replies"], ["escalation", "Questions"], ["claim", "Claims"], ["key", "Keys"], ["stop", "Stops"], ["transport", "Transports"],
  ["domain", "Domains"], ["endpoint", "Webhooks"], ["audit", "Audit"],
];

const isKind = (type: string, kind: string) => !kind || type === kind || type.startsWith(`${kind}.`);

function Filters({ kind, text }: { kind: string; text: string }) {
  const input = useRef<HTMLInputElement>(null);
  useShortcuts("Filter", [{ keys: "/", does: "filter by text", run: () => input.current?.focus() }]);
  return (
    <search class="live-filters">
      <SelectField label="Kind" value={kind} onChange={(value) => setSearch({ kind: value })} options={KINDS} />
      <TextField label="Text" type="search" value={text} onInput={(value) => setSearch({ q: value })} placeholder="A key, an id, an address, a word" inputRef={input} />
    </search>
  );
}

function Nothing({ filtered }: { filtered: boolean }) {
  if (filtered) {
    return (
      <Empty title="No event matches yet">
        <p>New events that match appear here as they happen.</p>
        <Button onPress={() => setSearch({ kind: null, q: null })}>Clear the filter</Button>
      </Empty>
    );
  }
  return (
    <Empty title="Nothing has happened yet">
      <p>Every change to emails, messages, threads and claims appears here at once. Send an email twice with the same key and watch the duplicate arrive:</p>
      <SendCommand />
    </Empty>
  );
}

function PauseButton({ paused, waiting, setPaused }: Pick<Recent, "paused" | "waiting" | "setPaused">) {
  useShortcuts("Live", [{ keys: "p", does: paused ? "resume" : "pause", run: () => setPaused(!paused) }]);
  return <Button kind={paused ? "primary" : "plain"} onPress={() => setPaused(!paused)}>{paused ? `Resume${waiting > 0 ? ` (${waiting} new)` : ""}` : "Pause"}</Button>;
}

export function Live() {
  const recent = useRecentEvents();
  const kind = search.value.get("kind") ?? "";
  const text = search.value.get("q") ?? "";
  const shown = recent.events.filter((event) => isKind(event.type, kind) && contains(event, text));
  return (
    <>
      <PageHead title="Live" intro="Every event of the team, newest first. Open one to copy the call behind it.">
        {recent.events.length > 0 && <Button kind="quiet" onPress={recent.clear}>Clear</Button>}
        <PauseButton {...recent} />
      </PageHead>
      <Filters kind={kind} text={text} />
      {streamState.value === "waiting" && <p class="notice wait" role="status">The stream is interrupted. It continues where it stopped as soon as the server answers.</p>}
      {recent.problem && <Problem problem={recent.problem} />}
      {shown.length > 0 && <List label="Events" items={shown} keyOf={({ id }) => id} render={rowOf} />}
      {shown.length === 0 && (recent.loading ? <Loading lines={6} /> : <Nothing filtered={Boolean(kind || text)} />)}
      {recent.events.length >= MAX_ROWS && <p class="muted small-text">The latest {MAX_ROWS} events are shown. <code>mailonce tail --after 0</code> prints all of them.</p>}
    </>
  );
}
