// One inbox: its messages, every arrival, and its settings.
import { useRef } from "preact/hooks";
import { get, patch } from "../../api/client";
import { useEvents } from "../../api/events";
import { useLoad, usePages } from "../../api/load";
import { useRefreshPages } from "../../api/refresh";
import type { MailEvent, Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { Code, Id } from "../../components/Code";
import { confirm } from "../../components/Dialog";
import { Empty, Loading } from "../../components/Empty";
import { SelectField, TextField } from "../../components/Field";
import { useShortcuts } from "../../components/keys";
import { List } from "../../components/List";
import { Facts, PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { More } from "../../components/Table";
import { Tabs } from "../../components/Tabs";
import { Time } from "../../components/Time";
import { announce, toast } from "../../components/Toast";
import { useTyped } from "../../components/typed";
import { search, setSearch } from "../../router";
import type { PageProps } from "../index";
import { Deliveries } from "./Deliveries";
import { MessageRow, type Message } from "./MessageRow";

type Inbox = Schema["InboxBody"];
const STATES: [string, string][] = [["", "Any state"], ["unanswered", "unanswered"], ["leased", "leased"], ["answered", "answered"], ["skipped", "skipped"]];
const HAS: [string, string][] = [["", "Anything"], ["code", "A code"], ["link", "A link"]];
const PAGE = 50;

/** A text field that changes the query of the address when the user stops typing. */
function QueryField({ name, label, placeholder, inputRef }: { name: string; label: string; placeholder: string; inputRef?: { current: HTMLInputElement | null } }) {
  const value = search.value.get(name) ?? "";
  const [typed, setTyped] = useTyped(value, (next) => setSearch({ [name]: next }));
  return <TextField label={label} type="search" value={typed} onInput={setTyped} placeholder={placeholder} inputRef={inputRef} />;
}

function Filters() {
  const input = useRef<HTMLInputElement>(null);
  useShortcuts("Messages", [{ keys: "/", does: "filter by subject", run: () => input.current?.focus() }]);
  return (
    <search class="inboxes-filters">
      <QueryField name="subject" label="Subject" placeholder="Words of the subject" inputRef={input} />
      <QueryField name="from" label="From" placeholder="ann@example.com or @example.com" />
      <SelectField label="State" value={search.value.get("state") ?? ""} onChange={(state) => setSearch({ state })} options={STATES} />
      <SelectField label="Contains" value={search.value.get("has") ?? ""} onChange={(has) => setSearch({ has })} options={HAS} />
    </search>
  );
}

function Messages({ inbox }: { inbox: Inbox }) {
  const filter = Object.fromEntries(["subject", "from", "state", "has"].map((name) => [name, search.value.get(name)?.trim() || undefined]));
  const pages = usePages<Message>(`/v1/inboxes/${inbox.id}/messages`, { ...filter, limit: PAGE });
  const { items, problem, loading, done, more, reload } = pages;
  const isHere = (event: MailEvent) => (event.data as { inbox?: string }).inbox === inbox.id;
  useRefreshPages("message.*,thread.leased", pages, PAGE, isHere);
  useEvents("message.received", (event) => isHere(event) && announce("A message arrived"));
  const filtered = Object.values(filter).some(Boolean);
  return (
    <div class="stack">
      <Filters />
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && !problem && !done && <Loading lines={5} />}
      {items.length === 0 && done && (filtered ? <Empty title="No message matches"><Button onPress={() => setSearch({ subject: null, from: null, state: null, has: null })}>Clear the filter</Button></Empty> : (
        <Empty title="No message yet">
          <p>Mail to {inbox.address} appears here at once. Let one arrive, with a code in it:</p>
          <Code label="the command" text={`mailonce simulate inbound --to ${inbox.address} --code`} />
        </Empty>
      ))}
      {items.length > 0 && <List label="Messages" items={items} keyOf={({ id }) => id} render={(message) => <MessageRow message={message} />} />}
      <More done={done || items.length === 0} loading={loading} more={more} />
    </div>
  );
}

function Settings({ inbox, set }: { inbox: Inbox; set: (inbox: Inbox) => void }) {
  const { caps } = inbox;
  const end = async () => {
    const sure = await confirm({ title: `End ${inbox.address}?`, action: "End inbox", danger: true, body: <p>It refuses mail from now on and keeps its messages. You can make it permanent again.</p> });
    if (sure) set(await patch<Inbox>(`/v1/inboxes/${inbox.id}`, { ttl: "0s", rev: inbox.rev }));
  };
  const keep = async () => {
    set(await patch<Inbox>(`/v1/inboxes/${inbox.id}`, { ttl: null, rev: inbox.rev }));
    toast("The inbox is permanent");
  };
  return (
    <section class="card stack" aria-label="Settings">
      <Facts facts={[
        ["Address", <Id value={inbox.address} label="the address" />],
        ["Id", <Id value={inbox.id} />],
        ["Display name", inbox.name],
        ["Agent", inbox.agent],
        ["Created", <Time at={inbox.created_at} />],
        ["Ends", inbox.expires_at ? <Time at={inbox.expires_at} /> : "never"],
        ["Catch-all", inbox.catch_all ? "yes: mail for every address of its domain without an inbox" : "no"],
        ["Replies", `${caps.per_window} in ${caps.window_s} s and ${caps.per_thread_per_day} a day in a thread, ${caps.per_recipient_per_day} a day to one person`],
        ["Automatic mail", inbox.reply_to_likely_automatic ? "may be answered when it only looks automatic" : "is not answered"],
        ["Allowed links", inbox.allowed_link_domains.length > 0 ? inbox.allowed_link_domains.join(", ") : "judged by the domain of the sender"],
      ]} />
      <p class="row">{inbox.expires_at ? <Button onPress={keep}>Make permanent</Button> : <Button kind="danger" onPress={end}>End inbox…</Button>}</p>
    </section>
  );
}

export function InboxPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const { data, problem, reload, set } = useLoad((signal) => get<Inbox>(`/v1/inboxes/${encodeURIComponent(id)}`, {}, { signal }), [id]);
  const intro = data && <>{data.name}{data.name && data.agent ? ", " : ""}{data.agent && `agent ${data.agent}`}{!data.name && !data.agent && `${data.message_count.toLocaleString("en")} messages received`}</>;
  return (
    <>
      <PageHead title={data?.address ?? "Inbox"} intro={intro} back={{ href: "/inboxes", label: "Inboxes" }}>
        {data && <a class="button" href={`/threads?inbox=${data.id}`}>Threads</a>}
      </PageHead>
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={5} />}
      {data && (
        <Tabs label="Inbox" tabs={[
          { name: "messages", label: "Messages", content: () => <Messages inbox={data} /> },
          { name: "arrivals", label: "Arrivals", content: () => <Deliveries inbox={data.id} address={data.address} /> },
          { name: "settings", label: "Settings", content: () => <Settings inbox={data} set={set} /> },
        ]} />
      )}
    </>
  );
}
