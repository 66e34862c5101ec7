// The first page: teaches while there is no email, and is the overview afterwards.
import { useState } from "preact/hooks";
import { get } from "../../api/client";
import { useLoad } from "../../api/load";
import type { Email, Page, Schema } from "../../api/types";
import { Loading } from "../../components/Empty";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { FirstRun } from "./FirstRun";
import { Overview } from "./Overview";

const DEV_SENDER = "agent@mailonce.test";

/** An address that the team may send from: that of an inbox, or one at a domain. */
async function findSender(signal: AbortSignal): Promise<string> {
  const inboxes = await get<Schema["InboxPage"]>("/v1/inboxes", { limit: 1 }, { signal });
  const inbox = inboxes.data[0]?.address;
  if (inbox) return inbox;
  const domains = await get<Schema["DomainPage"]>("/v1/domains", { limit: 1 }, { signal });
  const domain = domains.data[0]?.name;
  return domain ? `agent@${domain}` : DEV_SENDER;
}

export function Home() {
  const { data, problem, reload } = useLoad((signal) => get<Page<Email>>("/v1/emails", { limit: 1 }, { signal }), []);
  const sender = useLoad(findSender, []).data ?? DEV_SENDER;
  const [left, setLeft] = useState(false);
  if (problem) return <><PageHead title="Overview" /><Problem problem={problem} retry={reload} /></>;
  if (!data) return <><PageHead title="Overview" /><Loading lines={6} /></>;
  // The first emails do not end the lesson; leaving it does.
  return data.data.length === 0 && !left ? <FirstRun sender={sender} leave={() => setLeft(true)} /> : <Overview sender={sender} />;
}
