// The overview: what waits, how much was sent, and how many repeated calls sent nothing.
import { useState } from "preact/hooks";
import { get } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { useLoad } from "../../api/load";
import { needsYouTotal } from "../../api/needs-you";
import { isMissing } from "../../api/problem";
import { useStats } from "../../api/stats";
import type { Email, Escalation, Page, Stats } from "../../api/types";
import { Chart } from "../../components/Chart";
import { Loading } from "../../components/Empty";
import { SelectField } from "../../components/Field";
import { List } from "../../components/List";
import { PageHead } from "../../components/PageHead";
import { NotServed, Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { Table } from "../../components/Table";
import { Time } from "../../components/Time";
import { subjectOf, visible } from "../../components/visible";
import { REASONS } from "../needs-you/reasons";
import { Storm } from "./Storm";

const SPANS: [string, string][] = [["1", "Last hour"], ["24", "Last 24 hours"], ["168", "Last 7 days"], ["720", "Last 30 days"]];
const number = (value: number | undefined) => (value ?? 0).toLocaleString("en");

const SHOWN = 5;

/** The list has no emails, so each question is read for the subject. */
async function loadWaiting(signal: AbortSignal): Promise<Escalation[]> {
  const { data } = await get<Page<Escalation>>("/v1/escalations", { state: "open", limit: SHOWN }, { signal });
  return Promise.all(data.map(({ id }) => get<Escalation>(`/v1/escalations/${id}`, {}, { signal })));
}

function Waiting() {
  const { data, reload } = useLoad(loadWaiting, []);
  useRefreshOn("escalation.*", () => void reload());
  if (!data || data.length === 0) return null;
  return (
    <section aria-labelledby="waiting-title">
      <h2 id="waiting-title" class="home-waiting-title"><a href="/needs-you">{number(needsYouTotal.value)} {needsYouTotal.value === 1 ? "decision waits" : "decisions wait"} for you</a></h2>
      <List label="What waits for you" items={data} keyOf={({ id }) => id} render={(escalation) => (
        <a class="home-question" href={`/needs-you/${escalation.id}`} data-row="">
          <StateChip state={REASONS[escalation.reason].label} tone="wait" />
          <span><strong>{visible(escalation.about.question ?? escalation.email?.subject ?? REASONS[escalation.reason].why)}</strong> {escalation.email && <span class="muted">to {escalation.email.to.join(", ")}</span>}</span>
          <Time at={escalation.created_at} />
        </a>
      )} />
    </section>
  );
}

function Numbers({ stats }: { stats: Stats }) {
  const arrived = (stats.states.sent ?? 0) + (stats.states.delivered ?? 0);
  const failed = (stats.states.failed ?? 0) + (stats.states.bounced ?? 0) + (stats.states.complained ?? 0);
  return (
    <div class="home-tiles">
      <p class="home-tile accent"><strong>{number(stats.duplicates)}</strong> repeats that sent nothing</p>
      <p class="home-tile"><strong>{number(stats.accepted)}</strong> emails accepted</p>
      <p class="home-tile"><strong>{number(arrived)}</strong> sent or delivered</p>
      <p class="home-tile"><strong>{number(failed)}</strong> failed, bounced or complained</p>
    </div>
  );
}

function Charts({ stats }: { stats: Stats }) {
  const times = stats.buckets.map(({ at }) => at);
  return (
    <div class="grid">
      <section class="card stack" aria-label="Duplicates">
        <Chart label="Duplicates stopped" times={times} series={[{ label: "Duplicates", tone: "accent", values: stats.buckets.map(({ duplicates }) => duplicates) }]} />
      </section>
      <section class="card stack" aria-label="Accepted">
        <Chart label="Emails accepted" times={times} series={[{ label: "Accepted", tone: "busy", values: stats.buckets.map(({ accepted }) => accepted) }]} />
      </section>
    </div>
  );
}

function Statistics({ hours }: { hours: string }) {
  const { data, problem, reload } = useStats(hours);
  if (problem && isMissing(problem)) return <NotServed what="statistics" />;
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (!data) return <Loading lines={4} />;
  return <div class="stack"><Numbers stats={data} /><Charts stats={data} /></div>;
}

function Latest() {
  const { data, problem, reload } = useLoad((signal) => get<Page<Email>>("/v1/emails", { limit: 8 }, { signal }), []);
  useRefreshOn("email.*", () => void reload());
  if (problem) return <Problem problem={problem} retry={reload} />;
  return (
    <section class="card flush" aria-labelledby="latest-title">
      <h2 id="latest-title" class="home-latest"><a href="/emails">Latest emails</a></h2>
      {data ? (
        <Table label="Latest emails" rows={data.data} keyOf={({ id }) => id} href={({ id }) => `/emails/${id}`} columns={[
          { head: "Subject", cell: subjectOf },
          { head: "To", cell: ({ to }) => to.join(", "), wide: true },
          { head: "Stopped", cell: ({ suppressed }) => (suppressed > 0 ? number(suppressed) : ""), number: true },
          { head: "State", cell: ({ state }) => <StateChip state={state} /> },
          { head: "Accepted", cell: ({ created_at: at }) => <Time at={at} />, wide: true },
        ]} />
      ) : <Loading />}
    </section>
  );
}

export function Overview({ sender }: { sender: string }) {
  const [hours, setHours] = useState("24");
  return (
    <>
      <PageHead title="Overview" intro="What was sent, what was stopped, and what needs you.">
        <SelectField label="Time span" hideLabel value={hours} onChange={setHours} options={SPANS} />
      </PageHead>
      <Waiting />
      <Statistics hours={hours} />
      <Latest />
      <details class="card">
        <summary>Send the same email 50 times at once</summary>
        <Storm sender={sender} />
      </details>
    </>
  );
}
