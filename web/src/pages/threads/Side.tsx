// Who works on a thread, how many replies it may still get, and its labels.
import { useEffect, useId, useState } from "preact/hooks";
import { del, patch } from "../../api/client";
import { Button } from "../../components/Button";
import { confirm } from "../../components/Dialog";
import { TextField } from "../../components/Field";
import { SubmitButton, useSubmit } from "../../components/FormDialog";
import { Meter } from "../../components/Meter";
import { Facts } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { may } from "../../session/session";
import { isHeld, type Thread } from "./lease";

export interface SideProps {
  thread: Thread;
  reload: () => Promise<void>;
}

/** Ends the lease of an agent that is stuck. Its replies are refused from then on. */
export async function takeOver({ thread, reload }: SideProps): Promise<void> {
  const sure = await confirm({
    title: may("reply") ? `Take over from ${thread.lease?.holder}?` : `End the lease of ${thread.lease?.holder}?`, action: may("reply") ? "Take over" : "End the lease", danger: true,
    body: <><p>The lease ends now. Replies that {thread.lease?.holder} sends with it are refused.</p><p>Each message is still answered once, whoever answers it.</p></>,
  });
  if (!sure) return;
  await del(`/v1/threads/${thread.id}/lease`, { force: true });
  toast("The thread is free");
  await reload();
}

/** Renders again when the lease expires. */
function useExpiry(at: string | undefined): void {
  const [, setExpired] = useState("");
  useEffect(() => {
    const left = Date.parse(at ?? "") - Date.now();
    if (!(left > 0 && left < 86_400_000)) return undefined;
    const timer = window.setTimeout(() => setExpired(at ?? ""), left + 50);
    return () => window.clearTimeout(timer);
  }, [at]);
}

export function Lease({ thread, reload }: SideProps) {
  useExpiry(thread.lease?.expires_at);
  const held = isHeld(thread);
  const allowed = may("admin", "approve");
  return (
    <section class="card stack" aria-labelledby="lease">
      <div class="row"><h2 id="lease">Lease</h2><span class={`chip ${held ? "busy" : "plain"}`}>{held ? "held" : "free"}</span></div>
      {held ? <p><strong>{thread.lease?.holder}</strong> works on this thread. Nobody else can reply.</p> : <p class="muted">Nobody works on this thread. An agent can take it, or you can reply.</p>}
      <Facts facts={[
        ["Expires", held && thread.lease ? <Time at={thread.lease.expires_at} /> : null],
        ["Took it with", held && thread.lease?.message ? <a href={`/messages/${thread.lease.message}`}>a message</a> : null],
        ["Fence", `${thread.fence}${thread.fence === 0 ? " (never leased)" : ""}`],
      ]} />
      {held && <Button kind="danger" disabled={!allowed} title={allowed ? undefined : "Needs the scope approve or admin"} onPress={() => takeOver({ thread, reload })}>{may("reply") ? "Take over…" : "End the lease…"}</Button>}
    </section>
  );
}

const minutes = (seconds: number) => (seconds % 60 === 0 ? `${seconds / 60} min` : `${seconds} s`);

export function Caps({ thread: { replies } }: { thread: Thread }) {
  if (!replies) return null;
  const { caps } = replies;
  return (
    <section class="card stack" aria-labelledby="caps">
      <h2 id="caps">Replies</h2>
      <Facts facts={[
        [`In ${minutes(caps.window_s ?? 0)}`, caps.per_window ? <Meter label="Replies in the window" used={replies.in_window} limit={caps.per_window} /> : null],
        ["In 24 hours", caps.per_thread_per_day ? <Meter label="Replies in 24 hours" used={replies.last_24h} limit={caps.per_thread_per_day} /> : null],
        ["In total", caps.per_thread_total ? <Meter label="Replies in total" used={replies.total} limit={caps.per_thread_total} /> : `${replies.total}, without a limit`],
      ]} />
      <p class="muted small-text">A reply beyond a limit is held for a person.</p>
    </section>
  );
}

export function Labels({ thread, set }: { thread: Thread; set: (thread: Thread) => void }) {
  const [added, setAdded] = useState("");
  const allowed = may("reply");
  const change = async (labels: string[]) => set({ ...thread, ...(await patch<Thread>(`/v1/threads/${thread.id}`, { labels })), entries: thread.entries });
  const id = useId();
  const { pending, problem, onSubmit } = useSubmit(async () => {
    await change([...new Set([...thread.labels, added.trim()])]);
    setAdded("");
  });
  return (
    <section class="card stack" aria-labelledby="labels">
      <h2 id="labels">Labels</h2>
      {thread.labels.length === 0 && <p class="muted">No label.</p>}
      <ul class="row">
        {thread.labels.map((label) => (
          <li class="threads-label" key={label}>
            <span class="chip plain free-text">{label}</span>
            {allowed && <Button kind="quiet" class="small" label={`Remove label ${label}`} onPress={() => change(thread.labels.filter((other) => other !== label))}>×</Button>}
          </li>
        ))}
      </ul>
      {allowed && (
        <form class="threads-add" id={id} onSubmit={(event) => void onSubmit(event)}>
          <TextField label="New label" value={added} onInput={setAdded} placeholder="billing" />
          <SubmitButton form={id} pending={pending} disabled={!added.trim()}>Add</SubmitButton>
        </form>
      )}
      {problem && <Problem problem={problem} />}
    </section>
  );
}
