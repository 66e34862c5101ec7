// All idempotency keys, and the tool that compares a request with what a key belongs to.
import { useRef } from "preact/hooks";
import { usePages } from "../../api/load";
import { isMissing } from "../../api/problem";
import { useRefreshPages } from "../../api/refresh";
import { useSender } from "../../api/sender";
import type { Schema } from "../../api/types";
import { SendCommand } from "../../components/ExampleCommand";
import { Empty, Loading } from "../../components/Empty";
import { CheckField, TextField } from "../../components/Field";
import { KeyName } from "../../components/KeyName";
import { useShortcuts } from "../../components/keys";
import { PageHead } from "../../components/PageHead";
import { NotServed, Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { More, Table } from "../../components/Table";
import { Tabs } from "../../components/Tabs";
import { Time } from "../../components/Time";
import { useTyped } from "../../components/typed";
import { search, setSearch } from "../../router";
import { Compare } from "./Compare";

type Key = Schema["KeyBody"];
const PAGE = 50;
const EXAMPLE = { to: "eve@example.com", subject: "Order 4821", text: "Thank you for your order." };

function Filters({ prefix, duplicates }: { prefix: string; duplicates: boolean }) {
  const input = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useTyped(prefix, (value) => setSearch({ prefix: value }));
  useShortcuts("Keys", [{ keys: "/", does: "find a key", run: () => input.current?.focus() }]);
  return (
    <search class="keys-filters">
      <TextField label="Begins with" type="search" value={typed} onInput={setTyped} placeholder="order-" inputRef={input} />
      <CheckField label="Only keys with duplicates" checked={duplicates} onChange={(checked) => setSearch({ duplicates: checked ? "true" : null })} />
    </search>
  );
}

function NoKeys({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty title="No key matches"><p>Keys are compared from their first character, and case counts.</p></Empty>;
  return (
    <Empty title="No key is remembered yet">
      <p>An idempotency key identifies one email. A retry with the same key gets the first email back instead of a duplicate.</p>
      <SendCommand />
    </Empty>
  );
}

function KeyList({ prefix, duplicates }: { prefix: string; duplicates: boolean }) {
  const pages = usePages<Key>("/v1/keys", { prefix, duplicates: duplicates || undefined, limit: PAGE });
  const { items, problem, loading, done, more, reload } = pages;
  useRefreshPages("key.*,email.accepted,email.held,email.duplicate", pages, PAGE);
  if (problem) return isMissing(problem) ? <NotServed what="a list of keys" /> : <Problem problem={problem} retry={reload} />;
  if (items.length === 0 && !done) return <Loading lines={6} />;
  if (items.length === 0) return <NoKeys filtered={Boolean(prefix || duplicates)} />;
  return (
    <div class="card flush">
      <Table label="Keys" rows={items} keyOf={({ key }) => key} href={({ key }) => `/keys/${encodeURIComponent(key)}`} columns={[
        { head: "Key", cell: ({ key }) => <KeyName value={key} /> },
        { head: "From", wide: true, cell: ({ derivation, intent }) => (intent ? `${intent.type} ${intent.entity}` : derivation ?? "") },
        { head: "State", cell: ({ state, bound_to: bound }) => <StateChip state={state ?? bound} /> },
        { head: "Stopped", number: true, cell: ({ hits }) => (hits > 0 ? hits.toLocaleString("en") : "") },
        { head: "Expires", wide: true, cell: ({ expires_at: at, bound_to: bound }) => (at ? <Time at={at} /> : bound === "email" ? "after the end" : "") },
      ]} />
      <More done={done} loading={loading} more={more} />
    </div>
  );
}

function Browse() {
  const prefix = search.value.get("prefix") ?? "";
  const duplicates = search.value.get("duplicates") === "true";
  return <div class="stack"><Filters prefix={prefix} duplicates={duplicates} /><KeyList prefix={prefix.trim()} duplicates={duplicates} /></div>;
}

function CompareAny() {
  const sender = useSender();
  return sender ? <Compare start={{ from: sender.address, ...EXAMPLE }} /> : <Loading lines={4} />;
}

export function Keys() {
  return (
    <>
      <PageHead title="Keys" intro="Idempotency keys, what they belong to, and how long they are remembered." />
      <Tabs label="Keys" start={search.value.get("tool") === "compare" ? "compare" : "list"} tabs={[
        { name: "list", label: "All keys", content: () => <Browse /> },
        { name: "compare", label: "Compare a request", content: () => <CompareAny /> },
      ]} />
    </>
  );
}
