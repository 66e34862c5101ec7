// One idempotency key: where it comes from, what it belongs to, how long it is remembered, and which calls it stopped.
import { useEffect, useState } from "preact/hooks";
import { del, get } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { useLoad } from "../../api/load";
import { sendBody } from "../../api/send-body";
import type { EmailDetail, Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { Code, Id } from "../../components/Code";
import { confirm } from "../../components/Dialog";
import { Loading } from "../../components/Empty";
import { shortKey } from "../../components/KeyName";
import { Facts, PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { SuppressedCalls } from "../../components/SuppressedCalls";
import { duration, Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { may } from "../../session/session";
import type { PageProps } from "../index";
import { Compare } from "./Compare";
import { derivationText, deriveKey } from "./derive";
import { ExtendDialog } from "./ExtendDialog";

type Key = Schema["KeyBody"];

const KINDS: Record<Key["bound_to"], string> = { email: "an email", operation: "another call", forgotten: "nothing: it was forgotten" };

function Actions({ data, reload }: { data: Key; reload: () => Promise<void> }) {
  const [extending, setExtending] = useState(false);
  if (data.bound_to !== "email") return null;
  const forget = async () => {
    const sure = await confirm({
      title: "Forget this key?", action: "Forget key", danger: true,
      body: <><p>The next call with <code>{data.key}</code> will send a new email, also if it is a retry of the old one.</p><p>The email itself is not changed.</p></>,
    });
    if (!sure) return;
    await del(`/v1/keys/${encodeURIComponent(data.key)}`);
    toast("The key is forgotten");
    await reload();
  };
  const missing = may("admin") ? undefined : "Needs the scope admin";
  return (
    <>
      <Button disabled={Boolean(missing)} title={missing} onPress={() => setExtending(true)}>Remember longer…</Button>
      <Button kind="danger" disabled={Boolean(missing)} title={missing} onPress={forget}>Forget…</Button>
      {extending && <ExtendDialog data={data} close={() => setExtending(false)} reload={reload} />}
    </>
  );
}

/** The date, and how much time is left. */
const Expiry = ({ at }: { at: string }) => <><Time at={at} full /> <span class="muted">({duration(Math.max(0, Date.parse(at) - Date.now()))} left)</span></>;

function Summary({ data, email }: { data: Key; email: EmailDetail | null }) {
  return (
    <section class="card" aria-label="Summary">
      <Facts facts={[
        ["Key", <Id value={data.key} label="the key" />],
        ["Belongs to", data.email ? <a href={`/emails/${data.email}`}>{email?.subject || KINDS[data.bound_to]}</a> : KINDS[data.bound_to]],
        ["State", data.state ? <StateChip state={data.state} /> : null],
        ["Stopped", data.bound_to === "email" ? `${data.hits.toLocaleString("en")} ${data.hits === 1 ? "duplicate call" : "duplicate calls"}` : null],
        ["Remembered", data.ttl ? `${data.ttl} after the email ended` : null],
        ["Expires", data.expires_at ? <Expiry at={data.expires_at} /> : data.bound_to === "email" ? "not before the email ends" : null],
        ["Forgotten", data.forgotten_at ? <Time at={data.forgotten_at} full /> : null],
        ["Used", data.bind_number > 1 ? `${data.bind_number} times for a new email` : "once for a new email"],
        ["Digest", data.digest ? <code>{data.digest}</code> : null],
      ]} />
    </section>
  );
}

function Derivation({ data, email }: { data: Key; email: EmailDetail | null }) {
  const [computed, setComputed] = useState<string | null>(null);
  useEffect(() => {
    if (data.intent && email) deriveKey(data.intent, email.to).then(setComputed, () => setComputed(null));
  }, [data.key, email?.id]);
  if (data.derivation === "header") return <p>The caller chose it in the header <code>Idempotency-Key</code>.</p>;
  if (!data.intent) return <p class="muted">How the key was made is no longer stored.</p>;
  return (
    <div class="stack">
      <p>The server derived it from the intent and the recipients, so that every retry has the same key, however the email is worded.</p>
      <Code label="the derivation" text={derivationText(data.intent, email?.to ?? [])} wrap />
      {computed !== null && (computed === data.key
        ? <p><span class="chip good">verified</span> This browser computed the same key.</p>
        : <p class="muted">The recipients are written differently in the email, so this browser computes another key.</p>)}
    </div>
  );
}

function useOriginal(id: string | null | undefined): EmailDetail | null {
  const { data } = useLoad(async (signal) => (id ? get<EmailDetail>(`/v1/emails/${id}`, {}, { signal }) : null), [id]);
  return data;
}

function Inspector({ data }: { data: Key }) {
  const email = useOriginal(data.email);
  return (
    <>
      <div class="keys-columns">
        <Summary data={data} email={email} />
        {data.bound_to === "email" && <section class="card stack" aria-labelledby="derivation"><h2 id="derivation">Where it comes from</h2><Derivation data={data} email={email} /></section>}
      </div>
      {data.suppressed_calls.length > 0 && <section class="card stack" aria-labelledby="stopped"><h2 id="stopped">Stopped calls</h2><SuppressedCalls calls={data.suppressed_calls} total={data.hits} /></section>}
      {email && <section class="card stack" aria-labelledby="compare"><h2 id="compare">Compare a request</h2><p class="muted">Change the body to what your retry sends, to see what the server would say.</p><Compare key={email.id} fixedKey={data.derivation === "intent" ? "" : data.key} start={sendBody(email)} /></section>}
      {data.bound_to === "operation" && <p class="muted">Keys of calls other than sends are remembered for 24 hours, and compared by operation and path.</p>}
    </>
  );
}

export function KeyPage({ params }: PageProps) {
  const key = params["key"] ?? "";
  const { data, problem, reload } = useLoad((signal) => get<Key>(`/v1/keys/${encodeURIComponent(key)}`, {}, { signal }), [key]);
  useRefreshOn("key.*,email.*", () => void reload(), { matches: (event) => (event.data as { key?: string }).key === key || event.about.id === data?.email });
  return (
    <>
      <PageHead title={shortKey(key)} intro="Idempotency key" back={{ href: "/keys", label: "Keys" }}>{data && <Actions data={data} reload={reload} />}</PageHead>
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && <Inspector data={data} />}
    </>
  );
}
