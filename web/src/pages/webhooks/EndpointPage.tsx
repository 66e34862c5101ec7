// One endpoint: its settings, its state and its notices.
import { get } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { useLoad, usePages } from "../../api/load";
import { usePolling } from "../../api/poll";
import { Loading } from "../../components/Empty";
import { Facts, PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { search } from "../../router";
import { may } from "../../session/session";
import type { PageProps } from "..";
import { EndpointActions } from "./EndpointActions";
import type { Endpoint } from "./EndpointForm";
import { Notices, type Notice } from "./Notices";

const PAGE_SIZE = 50;
const REASONS = { asked: "paused by a call", gone: "the endpoint answered 410", failing: "no success for 14 days" };

function Summary({ endpoint }: { endpoint: Endpoint }) {
  const reason = endpoint.reason ? REASONS[endpoint.reason] : "";
  return (
    <section class="card" aria-label="Summary">
      <Facts facts={[
        ["State", <><StateChip state={endpoint.state} /> <span class="muted">since <Time at={endpoint.state_since} />{reason && `: ${reason}`}</span></>],
        ["Deliveries", endpoint.failing_since ? <span class="webhooks-failing">failing since <Time at={endpoint.failing_since} /></span> : "no failure since the last success"],
        ["Events", <code>{endpoint.events.join(", ")}</code>],
        ["Inboxes", endpoint.inboxes.length > 0 ? endpoint.inboxes.join(", ") : "all"],
        ["Headers", endpoint.headers.join(", ")],
        ["Format", endpoint.dialect],
        ["Rate limit", endpoint.rate_per_s ? `${endpoint.rate_per_s} requests per second` : null],
        ["Secrets", endpoint.secret_count === 1 ? "1 secret signs requests" : `${endpoint.secret_count} secrets sign requests until the earlier ones expire`],
        ["Added", <Time at={endpoint.created_at} />],
      ]} />
    </section>
  );
}

export function EndpointPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const path = `/v1/endpoints/${encodeURIComponent(id)}`;
  const { data, problem, reload, set } = useLoad((signal) => get<Endpoint>(path, {}, { signal }), [id]);
  const notices = usePages<Notice>(`${path}/notices`, { limit: PAGE_SIZE, state: search.value.get("state") });
  const refresh = () => void Promise.all([reload(), notices.reload()]);
  useRefreshOn("endpoint.*", refresh);
  // Attempts have no event of their own. Later pages that are open stay as they are.
  usePolling(3000, () => {
    if (notices.items.length <= PAGE_SIZE && !notices.loading) refresh();
  });
  return (
    <>
      <PageHead title={data?.description || data?.url || "Endpoint"} intro={data?.description ? data.url : undefined} back={{ href: "/webhooks", label: "Webhooks" }}>
        {data && may("admin") && <EndpointActions endpoint={data} set={set} refresh={refresh} />}
      </PageHead>
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && <Summary endpoint={data} />}
      {data && <Notices endpoint={data.id} pages={notices} />}
    </>
  );
}
