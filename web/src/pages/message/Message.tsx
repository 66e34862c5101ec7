// One received message. A stranger wrote everything in it.
import { useState } from "preact/hooks";
import { get } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { useLoad } from "../../api/load";
import { Loading } from "../../components/Empty";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { subjectOf } from "../../components/visible";
import { may } from "../../session/session";
import type { PageProps } from "../index";
import { Artifacts, type Artifact } from "./Artifacts";
import { Attachments, Authentication, Links, Sender, Warnings } from "./Facts";
import { Reading } from "./Reading";
import type { Rendered } from "./words";

function Content({ message, model }: { message: Rendered; model: Rendered | null }) {
  const [revealed, reveal] = useState(false);
  const [changed, setChanged] = useState<Record<string, Artifact>>({});
  const artifacts = message.artifacts.map((artifact) => {
    const own = changed[artifact.id];
    // The answer of a take has the value; a later change by somebody else is in the message.
    return own && own.rev >= artifact.rev ? own : artifact;
  });
  return (
    <>
      <p><StateChip state={message.state} /></p>
      <Warnings message={message} model={model} />
      <div class="message-columns">
        <div class="stack loose">
          <Reading message={message} model={model} artifacts={artifacts} revealed={revealed} />
          <Attachments message={message} />
        </div>
        <div class="stack loose">
          <Artifacts artifacts={artifacts} candidates={message.candidates as Record<string, unknown>[]} revealed={revealed} reveal={reveal} change={(artifact) => setChanged((old) => ({ ...old, [artifact.id]: artifact }))} />
          <Sender message={message} />
          <Authentication auth={message.auth} />
          <Links links={model?.links ?? message.links} revealed={revealed} />
        </div>
      </div>
    </>
  );
}

export function MessagePage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const view = may("secrets") ? "full" : "plain";
  const load = (which: string) => (signal: AbortSignal) => get<Rendered>(`/v1/messages/${encodeURIComponent(id)}`, { view: which }, { signal });
  const { data, problem, reload } = useLoad(load(view), [id, view]);
  const model = useLoad(load("min"), [id]);
  useRefreshOn("message.*,artifact.*,thread.leased", () => void reload(), {
    matches: (event) => event.about.id === id || event.about.id === data?.thread_id || (event.data as { message?: string }).message === id,
  });
  return (
    <>
      <PageHead title={data ? subjectOf(data) : "Message"} back={data ? { href: `/inboxes/${data.inbox_id}`, label: "Inbox" } : { href: "/inboxes", label: "Inboxes" }}>
        {data && <a class="button" href={`/threads/${data.thread_id}`}>Open thread</a>}
      </PageHead>
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && <Content key={data.id} message={data} model={model.data} />}
    </>
  );
}
