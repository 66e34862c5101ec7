// One conversation.
import { get, patch } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { useLoad } from "../../api/load";
import { Button } from "../../components/Button";
import { Loading } from "../../components/Empty";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { announce, toast } from "../../components/Toast";
import { Time } from "../../components/Time";
import { subjectOf } from "../../components/visible";
import { may } from "../../session/session";
import type { PageProps } from "../index";
import type { Thread } from "./lease";
import { Reply } from "./Reply";
import { Caps, Labels, Lease } from "./Side";
import { Timeline } from "./Timeline";

function Handled({ thread, set }: { thread: Thread; set: (thread: Thread) => void }) {
  const allowed = may("reply");
  const toggle = async () => {
    const changed = await patch<Thread>(`/v1/threads/${thread.id}`, { handled: !thread.handled_at });
    set({ ...thread, ...changed, entries: thread.entries });
    toast(thread.handled_at ? "The thread is open again" : "The thread is handled until a new message arrives");
  };
  return <Button pressed={Boolean(thread.handled_at)} disabled={!allowed} title={allowed ? undefined : "Needs the scope reply"} onPress={toggle}>{thread.handled_at ? "Handled" : "Mark as handled"}</Button>;
}

/** Only the latest 100 of each direction are in the answer. */
function Missing({ thread }: { thread: Thread }) {
  const missing = thread.message_count + thread.email_count - (thread.entries?.length ?? 0);
  return missing > 0 ? <p class="muted">{missing.toLocaleString("en")} older entries are not shown.</p> : null;
}

export function ThreadPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const { data, problem, reload, set } = useLoad((signal) => get<Thread>(`/v1/threads/${encodeURIComponent(id)}`, {}, { signal }), [id]);
  const ids = new Set([id, ...(data?.entries ?? []).map((entry) => (entry.type === "message" ? entry.message.id : entry.email.id))]);
  useRefreshOn("thread.*,message.*,email.*", () => {
    void reload();
    announce("The thread changed");
  }, { matches: (event) => ids.has(event.about.id) || (event.data as { thread?: string }).thread === id });
  return (
    <>
      <PageHead title={data ? subjectOf(data) : "Thread"} back={{ href: "/threads", label: "Threads" }}
        intro={data && <>{data.message_count} received, {data.email_count} sent, active <Time at={data.last_activity_at} /></>}>
        {data && <><a class="button" href={`/inboxes/${data.inbox_id}`}>Inbox</a><Handled thread={data} set={set} /></>}
      </PageHead>
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && (
        <div class="threads-columns">
          <div class="stack loose">
            <Missing thread={data} />
            <Timeline entries={data.entries ?? []} />
            <Reply thread={data} reload={reload} />
          </div>
          <div class="stack loose">
            <Lease thread={data} reload={reload} />
            <Caps thread={data} />
            <Labels thread={data} set={set} />
          </div>
        </div>
      )}
    </>
  );
}
