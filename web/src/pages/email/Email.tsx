// One email: what happened to it, what it says, and what can be done.
import { useMemo } from "preact/hooks";
import { get, intention, post } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { useLoad } from "../../api/load";
import type { EmailDetail } from "../../api/types";
import { AttachmentLink } from "../../components/AttachmentLink";
import { Code, Id } from "../../components/Code";
import { isUsableKey } from "../../components/KeyName";
import { Loading } from "../../components/Empty";
import { MailFrame } from "../../components/MailFrame";
import { Facts, PageHead } from "../../components/PageHead";
import { PolicyTrace } from "../../components/PolicyTrace";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { Table } from "../../components/Table";
import { Tabs } from "../../components/Tabs";
import { bytes, Time } from "../../components/Time";
import { announce, toast } from "../../components/Toast";
import { subjectOf, visible } from "../../components/visible";
import type { PageProps } from "..";
import { may } from "../../session/session";
import { Choices, EMAIL_CHOICES } from "../needs-you/Choices";
import { Evidence } from "../needs-you/Evidence";
import { Actions } from "./Actions";
import { Waterfall } from "./Waterfall";

function Summary({ email }: { email: EmailDetail }) {
  const list = (addresses: string[] | undefined) => (addresses && addresses.length > 0 ? addresses.join(", ") : null);
  return (
    <section class="card email-summary" aria-label="Summary">
      <Facts facts={[
        ["From", email.from],
        ["To", list(email.to)],
        ["Cc", list(email.cc)],
        ["Bcc", list(email.bcc)],
        ["Reply-To", list(email.reply_to)],
        ["Accepted", <Time at={email.created_at} full />],
        ["Due", email.scheduled_at ? <Time at={email.scheduled_at} full /> : null],
        ["Held by", email.holds.length > 0 ? <a href="/needs-you">{email.holds.join(", ").replaceAll("_", " ")}</a> : null],
        ["Stopped by", email.stopped_by ? <a href="/stops">a stop</a> : null],
        ["Key", email.key ? <Id value={email.key} label="the key" href={isUsableKey(email.key) ? `/keys/${encodeURIComponent(email.key)}` : undefined} /> : <span class="muted">none: give each email a key, so that a retry is safe</span>],
        ["Key expires", email.expires_at ? <Time at={email.expires_at} full /> : null],
        ["Message-ID", <Id value={email.message_id} label="the Message-ID" />],
        ["Call", email.call?.id ? <code>{email.call.id}</code> : null],
        ["Trace", email.call?.traceparent ? <code>{email.call.traceparent}</code> : null],
        ["Thread", email.thread_id ? <a href={`/threads/${email.thread_id}`}>{email.thread_id}</a> : null],
        ["Version", email.version > 1 || email.resent_as ? email.version : null],
        ["Resend of", email.resend_of ? <a href={`/emails/${email.resend_of}`}>{email.resend_of}</a> : null],
        ["Resent as", email.resent_as ? <a href={`/emails/${email.resent_as}`}>{email.resent_as}</a> : null],
      ]} />
    </section>
  );
}

function Content({ email }: { email: EmailDetail }) {
  if (email.text == null && email.html == null) return <p class="muted">The content is no longer stored.</p>;
  return (
    <div class="stack">
      {email.text != null && <section class="email-part"><h2>Text</h2><pre class="plain-text">{email.text}</pre></section>}
      {email.html != null && <section class="email-part"><h2>HTML</h2><MailFrame html={email.html} label="HTML of the email" /></section>}
      {email.attachments.length > 0 && (
        <ul aria-label="Attachments">
          {email.attachments.map(({ filename, content_type: type, size }, index) => <li key={index}><AttachmentLink email={email.id} number={index}>{visible(filename ?? "without a name")}</AttachmentLink> <span class="muted">{type ?? "type not declared"}, {bytes(size)}</span></li>)}
        </ul>
      )}
    </div>
  );
}

const Policy = ({ email }: { email: EmailDetail }) =>
  (email.policy.length === 0 ? <p class="muted">No check was recorded.</p> : <PolicyTrace steps={email.policy} />);

const Timeline = ({ email }: { email: EmailDetail }) => (
  <Table label="Timeline" rows={email.timeline} keyOf={({ at, description }) => `${at} ${description}`} columns={[
    { head: "When", cell: ({ at }) => <Time at={at} full /> },
    { head: "What", cell: ({ description }) => description },
  ]} />
);

function Details({ email }: { email: EmailDetail }) {
  return (
    <section class="card" aria-label="Details">
      <Tabs label="Details" tabs={[
        { name: "content", label: "Content", content: () => <Content email={email} /> },
        { name: "attempts", label: "Attempts", content: () => <Evidence email={email} plain /> },
        { name: "policy", label: "Policy trace", content: () => <Policy email={email} /> },
        { name: "timeline", label: "Timeline", content: () => <Timeline email={email} /> },
        { name: "raw", label: "Raw", content: () => <Code text={JSON.stringify(email, null, 2)} label="the JSON of the email" wrap /> },
      ]} />
    </section>
  );
}

function Settle({ email, reload }: { email: EmailDetail; reload: () => Promise<void> }) {
  const keys = useMemo(() => ({ sent: intention(), resend: intention(), abandon: intention() }), [email.id, email.rev]);
  const settle = async (as: "sent" | "resend" | "abandon", reason: string) => {
    await post(`/v1/emails/${email.id}/resolve`, { as, rev: email.rev, reason: reason || null }, { key: keys[as] });
    toast("Settled");
    await reload();
  };
  if (!may("admin")) return <p class="notice wait">The outcome is unknown. <a href="/needs-you?group=unknown">Settle it under Needs you.</a></p>;
  return (
    <>
      <Evidence email={email} only="unknown" />
      <Choices choices={EMAIL_CHOICES} settle={settle} />
    </>
  );
}

export function EmailPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const { data, problem, reload } = useLoad((signal) => get<EmailDetail>(`/v1/emails/${encodeURIComponent(id)}`, {}, { signal }), [id]);
  useRefreshOn("email.*,handoff.*", () => {
    void reload();
    announce("The email changed");
  }, { matches: (event) => event.about.id === id });
  return (
    <>
      <PageHead title={data ? subjectOf(data) : "Email"} back={{ href: "/emails", label: "Emails" }}>
        {data && <Actions email={data} reload={reload} />}
      </PageHead>
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && (
        <>
          <p class="row"><StateChip state={data.state} />{data.suppressed > 0 && <strong class="email-saved">{data.suppressed.toLocaleString("en")} {data.suppressed === 1 ? "duplicate" : "duplicates"} stopped</strong>}</p>
          {data.state === "unknown" && <Settle email={data} reload={reload} />}
          <Waterfall email={data} />
          <Summary email={data} />
          <Details email={data} />
        </>
      )}
    </>
  );
}
