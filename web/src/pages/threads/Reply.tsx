// Replies to a message of a thread. The server accepts one reply for each message and follow-up.
import { useState } from "preact/hooks";
import { post } from "../../api/client";
import { asProblem, type ApiProblem } from "../../api/problem";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { CheckField, SelectField, TextField } from "../../components/Field";
import { useIntentions } from "../../components/FormDialog";
import { Problem } from "../../components/Problem";
import { absoluteTime } from "../../components/Time";
import { announce } from "../../components/Toast";
import { may } from "../../session/session";
import { senderOf, type Message } from "../inboxes/MessageRow";
import { isHeld } from "./lease";
import { takeOver, type SideProps } from "./Side";

type Receipt = Schema["SendReceiptBody"];

function Answer({ receipt }: { receipt: Receipt }) {
  const replayed = receipt.dedupe.outcome === "replayed";
  return (
    <p class={`notice ${receipt.state === "held" ? "wait" : ""}`} role="status">
      {replayed ? "This message already had that reply. Nothing was sent." : receipt.state === "held" ? "The reply is held until a person decides." : "The reply was accepted and will be sent once."}{" "}
      <a href={`/emails/${receipt.id}`}>Open the email</a>
    </p>
  );
}

/** Says it before the server refuses the reply. */
function HeldNotice({ thread, reload }: SideProps) {
  return (
    <div class="notice wait row spread">
      <p><strong>{thread.lease?.holder}</strong> works on this thread. Your reply is refused until you take over.</p>
      {may("admin", "approve") && <Button class="small" onPress={() => takeOver({ thread, reload })}>Take over…</Button>}
    </div>
  );
}

interface Draft {
  text: string;
  quote: boolean;
  all: boolean;
}

const EMPTY: Draft = { text: "", quote: true, all: false };

function Warnings({ message }: { message: Message }) {
  const { to, flags } = message.reply_target;
  return (
    <>
      <p class="muted">To {to.join(", ") || "nobody"}</p>
      {flags.includes("other_domain") && <p class="notice wait">The reply goes to another organization than the sender's.</p>}
      {flags.includes("auth_failed") && <p class="notice bad">The domain of the sender disowns this message.</p>}
      {message.automatic && <p class="notice wait">A machine sent this message ({message.automatic.reason.replaceAll("_", " ")}). Replies to it are refused.</p>}
    </>
  );
}

/** What a person had before them when they began to write. A reply goes there, whatever arrives meanwhile. */
interface Begun {
  message: string;
  seen: string[];
  /** How many replies the message had. A reply of somebody else must not turn this one into a follow-up. */
  replies: number;
}

const idOf = ({ id }: Message) => id;

/** What happened while the reply was written. Nothing of it changes where the reply goes; the server refuses what ignores it. */
function Meanwhile({ newer, replies, read }: { newer: number; replies: number; read: () => void }) {
  if (newer === 0 && replies === 0) return null;
  return (
    <div class="notice wait row spread" role="status">
      <p>
        {newer > 0 && <>{newer === 1 ? "A new message came" : `${newer} new messages came`} while you wrote. </>}
        {replies > 0 && <>Somebody else replied while you wrote. </>}
        Your reply still goes to the message above.
      </p>
      <Button class="small" onPress={read}>I have read {newer + replies === 1 ? "it" : "them"}</Button>
    </div>
  );
}

/** The text, its target and what was seen. The target stays as it is from the first letter on. */
function useDraft(messages: Message[]) {
  const [draft, setDraft] = useState(EMPTY);
  const [begun, setBegun] = useState<Begun | null>(null);
  const seeAll = (id: string) => setBegun({ message: id, seen: messages.map(idOf), replies: messages.find((message) => message.id === id)?.replies.length ?? 0 });
  const target = messages.find(({ id }) => id === begun?.message) ?? messages.at(-1);
  const write = (text: string) => {
    setDraft((old) => ({ ...old, text }));
    if (!begun && target) seeAll(target.id);
  };
  const clear = () => {
    setDraft(EMPTY);
    setBegun(null);
  };
  const newer = begun ? messages.filter(({ id }) => !begun.seen.includes(id)) : [];
  const followUp = begun?.replies ?? target?.replies.length ?? 0;
  const replies = (target?.replies.length ?? 0) - followUp;
  return { draft, setDraft, write, clear, target, newer: newer.length, replies, followUp, seeAll, seen: begun?.seen ?? messages.map(idOf) };
}

export function Reply({ thread, reload }: SideProps) {
  const messages = (thread.entries ?? []).flatMap((entry) => (entry.type === "message" ? [entry.message] : []));
  const { draft, setDraft, write, clear, target: message, newer, replies, followUp, seeAll, seen } = useDraft(messages);
  const [state, setState] = useState<{ receipt?: Receipt; problem?: ApiProblem }>({});
  const keyOf = useIntentions();
  if (!message) return null;
  if (!may("reply")) return <p class="muted">Replying needs the scope <code>reply</code>.</p>;
  const send = async () => {
    const body = { text: draft.text, quote: draft.quote, reply_all: draft.all, follow_up: followUp, seen: seen.slice(-100) };
    try {
      const receipt = await post<Receipt>(`/v1/messages/${message.id}/reply`, body, { key: keyOf([message.id, body]) });
      setState({ receipt });
      clear();
      announce("The reply was accepted");
      await reload();
    } catch (error) {
      setState({ problem: asProblem(error) });
    }
  };
  return (
    <section class="card stack" aria-labelledby="reply">
      <h2 id="reply">Reply</h2>
      {messages.length > 1 && <SelectField label="To the message" value={message.id} onChange={seeAll} options={[...messages].reverse().map((one) => [one.id, `${senderOf(one)}, ${absoluteTime(one.received_at)} (${one.state})`])} />}
      {isHeld(thread) && <HeldNotice thread={thread} reload={async () => {
        setState({});
        await reload();
      }} />}
      <Warnings message={message} />
      {followUp > 0 && <p class="notice">This message has {followUp === 1 ? "a reply" : `${followUp} replies`} already. What you send is follow-up {followUp}.</p>}
      <Meanwhile newer={newer} replies={replies} read={() => seeAll(message.id)} />
      <TextField label="Text" rows={5} value={draft.text} onInput={write} />
      <div class="row threads-options">
        <CheckField label="Quote the message" checked={draft.quote} onChange={(quote) => setDraft((old) => ({ ...old, quote }))} />
        {message.to.length + message.cc.length > 1 && <CheckField label="Reply to all" checked={draft.all} onChange={(all) => setDraft((old) => ({ ...old, all }))} />}
      </div>
      {state.problem && <Problem problem={state.problem} />}
      {state.receipt && <Answer receipt={state.receipt} />}
      <p class="row"><Button kind="primary" disabled={!draft.text.trim()} onPress={send}>Send reply</Button></p>
    </section>
  );
}
