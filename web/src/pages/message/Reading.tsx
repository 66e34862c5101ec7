// The text of a message in all its forms: rendered, plain, as a model gets it, header fields, source.
import { useState } from "preact/hooks";
import { call, get } from "../../api/client";
import { useLoad } from "../../api/load";
import { Button } from "../../components/Button";
import { Loading } from "../../components/Empty";
import { MailFrame } from "../../components/MailFrame";
import { Problem } from "../../components/Problem";
import { Table } from "../../components/Table";
import { Tabs, type Tab } from "../../components/Tabs";
import { bytes } from "../../components/Time";
import { may } from "../../session/session";
import type { Artifact } from "./Artifacts";
import { maskValues } from "./mask";
import { REMOVED_WORDS, spaced, type Rendered } from "./words";

/** Longer texts make the browser slow. The rest can be downloaded. */
const MAX_CHARS = 200_000;
const MAX_HEADERS = 500;

export interface ReadingProps {
  message: Rendered;
  /** The view `min`. */
  model: Rendered | null;
  artifacts: Artifact[];
  revealed: boolean;
}

const Gone = () => <p class="muted">The text of this message is no longer stored.</p>;
const NeedsSecrets = ({ what }: { what: string }) => <p class="muted">{what} needs the scope <code>secrets</code>, because codes and links in it are not masked.</p>;

function PlainText({ text }: { text: string }) {
  return (
    <>
      <pre class="plain-text message-text" tabIndex={0} aria-label="Text of the message">{text.slice(0, MAX_CHARS)}</pre>
      {text.length > MAX_CHARS && <p class="muted">The first {MAX_CHARS.toLocaleString("en")} of {text.length.toLocaleString("en")} characters are shown.</p>}
    </>
  );
}

/** A mail without a plain part has no text of its own; the server makes one of its HTML. */
function VisibleText({ message, hide }: { message: Rendered; hide: (text: string) => string }) {
  const { data, problem, reload } = useLoad(async (signal) => (message.text == null ? get<Rendered>(`/v1/messages/${message.id}`, { view: "plain" }, { signal }) : message), [message.id]);
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (!data) return <Loading lines={3} />;
  return data.text == null ? <Gone /> : <PlainText text={hide(data.text) || "(empty)"} />;
}

function Removed({ counts }: { counts: Record<string, unknown> }) {
  const parts = Object.entries(counts).filter(([, count]) => typeof count === "number" && count > 0);
  if (parts.length === 0) return <p class="muted">Nothing was removed from what a person sees.</p>;
  return <p class="notice">Removed for the model: {parts.map(([name, count]) => `${Number(count).toLocaleString("en")} ${REMOVED_WORDS[name] ?? spaced(name)}`).join(", ")}.</p>;
}

function ModelView({ model, hide }: { model: Rendered | null; hide: (text: string) => string }) {
  if (!model) return <p class="muted">Loading…</p>;
  if (model.text == null) return <Gone />;
  return (
    <div class="stack">
      <p class="muted">This is the text that <code>read_message</code> and <code>GET /v1/messages/{"{id}"}</code> return. The two lines around it have a random word, so that a mail cannot pretend to end it.</p>
      <PlainText text={hide(model.text)} />
      {model.removed_counts && <Removed counts={model.removed_counts as Record<string, unknown>} />}
      {model.complete === false && <p class="notice wait">Not everything could be processed, so parts of the mail are missing here.</p>}
    </div>
  );
}

function Source({ message }: { message: Rendered }) {
  const [source, setSource] = useState<string | null>(null);
  if (!may("secrets")) return <NeedsSecrets what="The source" />;
  const load = async () => setSource(await (await call("GET", `/v1/messages/${message.id}/raw`, undefined, { headers: { accept: "*/*" } })).text());
  return (
    <div class="stack">
      <p class="row">
        {source === null && <Button onPress={load}>Show the source ({bytes(message.size)})</Button>}
        <a class="button" href={`/v1/messages/${message.id}/raw`} download={`${message.id}.eml`}>Download</a>
      </p>
      {source === null ? <p class="muted">The bytes as they arrived. Codes and links in it are not masked.</p> : <div class="message-source"><PlainText text={source} /></div>}
    </div>
  );
}

function Headers({ message, hide }: { message: Rendered; hide: (text: string) => string }) {
  if (!may("secrets")) return <NeedsSecrets what="The header" />;
  const headers = message.headers ?? [];
  return (
    <>
      <Table label="Header fields" rows={headers.slice(0, MAX_HEADERS).map((header, index) => ({ ...header, index }))} keyOf={({ index }) => String(index)} columns={[
        { head: "Field", cell: ({ name }) => <strong>{name}</strong> },
        { head: "Value", cell: ({ value }) => hide(value) },
      ]} />
      {headers.length > MAX_HEADERS && <p class="muted">{headers.length - MAX_HEADERS} more fields are in the source.</p>}
    </>
  );
}

export function Reading({ message, model, artifacts, revealed }: ReadingProps) {
  const hide = (text: string) => (revealed ? text : maskValues(text, artifacts));
  const { html } = message;
  const tabs: Tab[] = [
    { name: "text", label: "Text", content: () => <VisibleText message={message} hide={hide} /> },
    { name: "model", label: "As the model sees it", content: () => <ModelView model={model} hide={hide} /> },
    { name: "headers", label: "Header", content: () => <Headers message={message} hide={hide} /> },
    { name: "source", label: "Source", content: () => <Source message={message} /> },
  ];
  if (html) tabs.unshift({ name: "rendered", label: "Rendered", content: () => <MailFrame html={hide(html)} label="The message without styles" hint="The server removed styles, images, hidden text and everything that acts or loads. Links are listed on this page with a verdict." /> });
  return <section class="card" aria-label="Text"><Tabs label="Forms of the message" tabs={tabs} /></section>;
}
