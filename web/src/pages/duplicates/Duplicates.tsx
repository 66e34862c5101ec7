// The calls that sent nothing: how many, and for each email which calls were stopped and why.
import { useState } from "preact/hooks";
import { get } from "../../api/client";
import { useLoad, usePages } from "../../api/load";
import { isMissing } from "../../api/problem";
import { useRefreshPages } from "../../api/refresh";
import { useStats } from "../../api/stats";
import type { Email, EmailDetail, Schema } from "../../api/types";
import { SuppressedCalls } from "../../components/SuppressedCalls";
import { Chart } from "../../components/Chart";
import { ArrivalCommand, SendCommand } from "../../components/ExampleCommand";
import { Empty, Loading } from "../../components/Empty";
import { isUsableKey, KeyName } from "../../components/KeyName";
import { List } from "../../components/List";
import { PageHead } from "../../components/PageHead";
import { NotServed, Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { FILTER_PATIENCE, More, NothingYet, Table } from "../../components/Table";
import { Tabs } from "../../components/Tabs";
import { Time } from "../../components/Time";
import { subjectOf } from "../../components/visible";
import { search, setSearch } from "../../router";

const PAGE = 50;
const SPANS: [hours: string, label: string][] = [["24", "24 hours"], ["168", "7 days"], ["720", "30 days"]];

function Saved({ hours }: { hours: string }) {
  const { data, problem, reload } = useStats(hours);
  if (problem) return isMissing(problem) ? <NotServed what="statistics" /> : <Problem problem={problem} retry={reload} />;
  if (!data) return <Loading lines={3} />;
  return (
    <section class="card duplicates-saved" aria-label="Repeated calls">
      <div>
        <p class="duplicates-number">{data.duplicates.toLocaleString("en")}</p>
        <p><strong>repeats that sent nothing</strong></p>
        <p class="muted">{data.accepted.toLocaleString("en")} emails were accepted. A repeated call gets one of them back, or is refused because it asks for a different email.</p>
      </div>
      <Chart label="Duplicate calls, by the time of their email" times={data.buckets.map(({ at }) => at)} series={[{ label: "Stopped duplicates", tone: "accent", values: data.buckets.map(({ duplicates }) => duplicates) }]} />
    </section>
  );
}

function Calls({ id, total }: { id: string; total: number }) {
  const { data, problem, reload } = useLoad((signal) => get<EmailDetail>(`/v1/emails/${id}`, {}, { signal }), [id, total]);
  if (problem) return <Problem problem={problem} retry={reload} />;
  return data ? <SuppressedCalls calls={data.suppressed_calls} total={data.suppressed} /> : <Loading lines={2} />;
}

function Row({ email }: { email: Email }) {
  const [open, setOpen] = useState(false);
  return (
    <div>
      <div class="duplicates-row">
        <button type="button" class="duplicates-open" data-row="" aria-expanded={open} aria-label={`Calls of ${email.subject || "the email without a subject"}`} onClick={() => setOpen(!open)}>
          <span aria-hidden="true">{open ? "▾" : "▸"}</span>
        </button>
        <span class="duplicates-count"><span class="chip accent">{email.suppressed.toLocaleString("en")}× stopped</span></span>
        <span class="duplicates-subject"><a href={`/emails/${email.id}`}>{subjectOf(email)}</a> <span class="muted">to {email.to.join(", ")}</span></span>
        <span class="duplicates-key">{email.key && (isUsableKey(email.key) ? <a href={`/keys/${encodeURIComponent(email.key)}`}><KeyName value={email.key} /></a> : <KeyName value={email.key} />)}</span>
        <span class="duplicates-state"><StateChip state={email.state} /></span>
        <span class="duplicates-time"><Time at={email.created_at} /></span>
      </div>
      {open && <div class="duplicates-calls"><Calls id={email.id} total={email.suppressed} /></div>}
    </div>
  );
}

function Outbound() {
  const pages = usePages<Email>("/v1/emails", { duplicates: true, limit: PAGE }, FILTER_PATIENCE);
  const { items, problem, loading, done, more, reload } = pages;
  useRefreshPages("email.duplicate", pages, PAGE);
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (items.length === 0 && !done) return loading ? <Loading lines={5} /> : <NothingYet more={more} />;
  if (items.length === 0) {
    return (
      <Empty title="No call was repeated yet">
        <p>When an agent, a worker or a model sends the same email again, the call is answered with the first email and appears here. Run this twice:</p>
        <SendCommand />
      </Empty>
    );
  }
  return (
    <>
      <List label="Emails with duplicates" items={items} keyOf={({ id }) => id} render={(email) => <Row email={email} />} />
      <More done={done} loading={loading} more={more} />
    </>
  );
}

const ARRIVALS: Record<string, string> = { same_delivery: "The same delivery again", same_message: "The same Message-ID and content", same_content: "The same content without a Message-ID" };

function Inbound() {
  const pages = usePages<Schema["DeliveryBody"]>("/v1/deliveries", { state: "duplicate", limit: PAGE });
  const { items, problem, loading, done, more, reload } = pages;
  useRefreshPages("delivery.duplicate", pages, PAGE);
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (items.length === 0 && !done) return <Loading lines={5} />;
  if (items.length === 0) {
    return (
      <Empty title="No mail arrived twice yet">
        <p>Senders retry and providers call webhooks twice. A mail that arrives again makes no second message.</p>
        <ArrivalCommand options="--code --duplicate 3" />
      </Empty>
    );
  }
  return (
    <div class="card flush">
      <Table label="Deliveries that made no message" rows={items} keyOf={({ id }) => id} columns={[
        { head: "From", cell: ({ sender }) => sender || "empty return path" },
        { head: "To", cell: ({ recipient }) => recipient },
        { head: "Why", cell: ({ reason }) => ARRIVALS[reason ?? ""] ?? reason?.replaceAll("_", " ") },
        { head: "First", cell: ({ message_id: id }) => (id ? <a href={`/messages/${id}`}>message</a> : ""), wide: true },
        { head: "When", cell: ({ received_at: at }) => <Time at={at} /> },
      ]} />
      <More done={done} loading={loading} more={more} />
    </div>
  );
}

export function Duplicates() {
  const hours = SPANS.find(([value]) => value === search.value.get("hours"))?.[0] ?? "24";
  return (
    <>
      <PageHead title="Duplicates" intro="Calls that repeated a key or an email. They got the earlier email back, or were refused.">
        <div class="row" role="group" aria-label="Span">
          {SPANS.map(([value, label]) => <button type="button" class="button small" key={value} aria-pressed={value === hours} onClick={() => setSearch({ hours: value === "24" ? null : value })}>{label}</button>)}
        </div>
      </PageHead>
      <Saved hours={hours} />
      <Tabs label="Direction" tabs={[
        { name: "out", label: "Sent by you", content: () => <Outbound /> },
        { name: "in", label: "Received", content: () => <Inbound /> },
      ]} />
    </>
  );
}
