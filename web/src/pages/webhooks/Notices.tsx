// The notices of an endpoint: one for each event, with the attempts and what the receiver answered.
import { useMemo } from "preact/hooks";
import { intention, post } from "../../api/client";
import type { Pages } from "../../api/load";
import type { Schema } from "../../api/types";
import { ApiCommand } from "../../components/ApiCommand";
import { Button } from "../../components/Button";
import { Id } from "../../components/Code";
import { Empty, Loading } from "../../components/Empty";
import { SelectField } from "../../components/Field";
import { List } from "../../components/List";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { More } from "../../components/Table";
import { duration, Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { search, setSearch } from "../../router";
import { may } from "../../session/session";
import { pageOf } from "./event-types";

export type Notice = Schema["NoticeBody"];
type Attempt = Schema["NoticeAttemptBody"];

const STATES: [string, string][] = [["", "Any state"], ["pending", "Pending"], ["delivered", "Delivered"], ["dead", "Dead"], ["dropped", "Dropped"]];

function AttemptRow({ attempt }: { attempt: Attempt }) {
  const good = attempt.status !== null && attempt.status !== undefined && attempt.status < 300;
  return (
    <li class="webhooks-attempt">
      <span class="webhooks-attempt-head">
        <strong>#{attempt.number}</strong>
        <StateChip state={attempt.status ? String(attempt.status) : attempt.error ?? "no response"} tone={good ? "good" : "bad"} />
        <span class="muted">{duration(attempt.latency_ms)}, <Time at={attempt.at} /></span>
      </span>
      {attempt.response && <pre class="webhooks-response" tabIndex={0}>{attempt.response}</pre>}
    </li>
  );
}

function Replay({ notice, update }: { notice: Notice; update: (notice: Notice) => void }) {
  // A replay of the next revision is another intention.
  const key = useMemo(intention, [notice.id, notice.rev]);
  const replay = async () => {
    update(await post<Notice>(`/v1/notices/${notice.id}/replay`, undefined, { key }));
    toast("Sent again. The result appears here.");
  };
  return <Button class="small" disabled={!may("admin")} onPress={replay}>Replay</Button>;
}

function NoticeRow({ notice, update }: { notice: Notice; update: (notice: Notice) => void }) {
  const page = pageOf(notice.type, notice.about);
  const last = notice.attempts[notice.attempts.length - 1];
  return (
    <details class="webhooks-notice">
      <summary data-row="">
        <StateChip state={notice.state} />
        <span class="webhooks-type">{notice.type}</span>
        <span class="muted webhooks-result">{last ? last.status ?? last.error : "not tried"}{notice.attempt_count > 1 && ` · ${notice.attempt_count} attempts`}</span>
        <span class="muted webhooks-when"><Time at={notice.created_at} /></span>
      </summary>
      <div class="webhooks-notice-body">
        <div class="row spread">
          <span class="row">
            <Id value={notice.id} label="the webhook-id" />
            {page && <a href={page}>Open what it is about</a>}
          </span>
          <Replay notice={notice} update={update} />
        </div>
        {notice.state === "pending" && <p class="muted">{notice.next_attempt_at ? <>Next attempt <Time at={notice.next_attempt_at} /></> : "Waits for an earlier notice about the same object."}</p>}
        <ol class="stack" aria-label="Attempts">{notice.attempts.map((attempt) => <AttemptRow attempt={attempt} key={attempt.number} />)}</ol>
      </div>
    </details>
  );
}

export function Notices({ endpoint, pages }: { endpoint: string; pages: Pages<Notice> }) {
  const { items, problem, loading, done, more, reload, update } = pages;
  const state = search.value.get("state") ?? "";
  const replace = (next: Notice) => update((all) => all.map((notice) => (notice.id === next.id ? next : notice)));
  return (
    <section class="stack" aria-labelledby="notices">
      <div class="row spread">
        <h2 id="notices">Notices</h2>
        <SelectField label="State" hideLabel value={state} onChange={(next) => setSearch({ state: next })} options={STATES} />
      </div>
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && loading && !done && <Loading />}
      {items.length === 0 && done && (
        <Empty title={state ? `No ${state} notice` : "No notice yet"}>
          <p>{state ? "Choose another state." : "A notice appears here for each event from now on. This command sends a test request at once and shows the response, as the button Test does:"}</p>
          {!state && <ApiCommand path={`/v1/endpoints/${endpoint}/test`} body={{}} />}
        </Empty>
      )}
      {items.length > 0 && <List label="Notices" items={items} keyOf={({ id }) => id} render={(notice) => <NoticeRow notice={notice} update={replace} />} />}
      <More done={done || items.length === 0} loading={loading} more={more} />
    </section>
  );
}
