// Both directions of a conversation, oldest first. The text of an entry is loaded when it is opened.
import { useState } from "preact/hooks";
import { get } from "../../api/client";
import { useLoad } from "../../api/load";
import type { Email, EmailDetail } from "../../api/types";
import { Loading } from "../../components/Empty";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { List } from "../../components/List";
import { senderOf, type Message } from "../inboxes/MessageRow";
import { maskValues } from "../message/mask";
import type { Rendered } from "../message/words";
import type { Entry } from "./lease";

const MAX_CHARS = 50_000;

function Text({ load, id, href }: { load: (signal: AbortSignal) => Promise<string | null | undefined>; id: string; href: string }) {
  const { data, problem, loading, reload } = useLoad(load, [id]);
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (loading && data === null) return <Loading lines={2} />;
  if (!data) return <p class="muted">It has no text that can be shown here. <a href={href}>Open it</a></p>;
  return (
    <>
      <pre class="plain-text threads-text" tabIndex={0} aria-label="Text">{data.slice(0, MAX_CHARS)}</pre>
      {data.length > MAX_CHARS && <p class="muted">The rest is on <a href={href}>its page</a>.</p>}
    </>
  );
}

function Received({ message, start }: { message: Message; start: boolean }) {
  const [open, setOpen] = useState(start);
  const load = async (signal: AbortSignal) => {
    const { text, artifacts } = await get<Rendered>(`/v1/messages/${message.id}`, { view: "plain" }, { signal });
    return text == null ? text : maskValues(text, artifacts);
  };
  return (
    <article class="threads-entry in" aria-label={`Message from ${senderOf(message)}`}>
      <header class="row spread">
        <p class="row"><span class="threads-arrow" aria-hidden="true">←</span><strong title={message.from?.address}>{senderOf(message)}</strong><a href={`/messages/${message.id}`} data-row=""><Time at={message.received_at} /></a></p>
        <p class="row">{message.auth.verdict === "fail" && <span class="chip bad">sender not authentic</span>}{message.automatic && <span class="chip plain">automatic</span>}<StateChip state={message.state} /></p>
      </header>
      {open ? <Text load={load} id={message.id} href={`/messages/${message.id}`} /> : <p class="threads-preview">{message.preview || "(no text)"}</p>}
      <button type="button" class="button quiet small threads-toggle" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Hide text" : "Show text"}</button>
    </article>
  );
}

function Sent({ email, start }: { email: Email; start: boolean }) {
  const [open, setOpen] = useState(start);
  const load = async (signal: AbortSignal) => (await get<EmailDetail>(`/v1/emails/${email.id}`, {}, { signal })).text;
  return (
    <article class="threads-entry out" aria-label={`Email to ${email.to.join(", ")}`}>
      <header class="row spread">
        <p class="row"><span class="threads-arrow" aria-hidden="true">→</span><span>to <strong>{email.to.join(", ")}</strong></span><a href={`/emails/${email.id}`} data-row=""><Time at={email.created_at} /></a></p>
        <p class="row">{email.suppressed > 0 && <span class="chip accent">{email.suppressed.toLocaleString("en")}× stopped</span>}{email.guard && <span class="chip wait">{email.guard.replaceAll("_", " ")}</span>}<StateChip state={email.state} /></p>
      </header>
      {open && <Text load={load} id={email.id} href={`/emails/${email.id}`} />}
      <button type="button" class="button quiet small threads-toggle" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Hide text" : "Show text"}</button>
    </article>
  );
}

const idOf = (entry: Entry) => (entry.type === "message" ? entry.message.id : entry.email.id);

/** The latest entries are open: they are what the reader came for, and loading all texts of a long thread takes time. */
const OPEN_AT_START = 6;

export function Timeline({ entries }: { entries: Entry[] }) {
  const latest = new Set(entries.slice(-OPEN_AT_START).map(idOf));
  const render = (entry: Entry) => (entry.type === "message" ? <Received message={entry.message} start={latest.has(entry.message.id)} /> : <Sent email={entry.email} start={latest.has(entry.email.id)} />);
  return <div class="threads-timeline"><List label="Conversation" items={entries} keyOf={idOf} render={render} /></div>;
}
