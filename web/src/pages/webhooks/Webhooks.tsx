// The endpoints of the team: where signed webhooks go, and whether they arrive.
import { useState } from "preact/hooks";
import { useRefreshOn } from "../../api/events";
import { usePages } from "../../api/load";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { Empty, Loading } from "../../components/Empty";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { SecretDialog } from "../../components/SecretDialog";
import { StateChip } from "../../components/StateChip";
import { More, Table } from "../../components/Table";
import { Time } from "../../components/Time";
import { navigate } from "../../router";
import { may } from "../../session/session";
import { EndpointForm, type Endpoint } from "./EndpointForm";

function Health({ endpoint }: { endpoint: Endpoint }) {
  if (endpoint.state !== "enabled") return <span class="muted">none since <Time at={endpoint.state_since} /></span>;
  if (endpoint.failing_since) return <span class="webhooks-failing">failing since <Time at={endpoint.failing_since} /></span>;
  return <span class="muted">no failure</span>;
}

function NoEndpoints() {
  return (
    <Empty title="No endpoint yet">
      <p>Your application receives events as signed webhooks: in order for each email, retried for 7 days, under an id that stays the same.</p>
      <p>Forward events to your own machine without an endpoint:</p>
      <Code label="the command" text="mailonce webhooks listen --forward-to http://127.0.0.1:3000/hooks" />
    </Empty>
  );
}

/** Shows the secret of a new endpoint, then its page. */
function Created({ endpoint }: { endpoint: Endpoint }) {
  return (
    <SecretDialog title="Signing secret" secret={endpoint.secret ?? ""} label="the signing secret" onClose={() => navigate(`/webhooks/${endpoint.id}`)}>
      <p>Verify every request with it. Libraries for Standard Webhooks and Svix accept it as it is.</p>
    </SecretDialog>
  );
}

export function Webhooks() {
  const { items, problem, loading, done, more, reload } = usePages<Endpoint>("/v1/endpoints", { limit: 50 });
  const [adding, setAdding] = useState(false);
  const [created, setCreated] = useState<Endpoint | null>(null);
  useRefreshOn("endpoint.*", () => void reload());
  const finish = (endpoint: Endpoint) => {
    setAdding(false);
    setCreated(endpoint);
  };
  return (
    <>
      <PageHead title="Webhooks" intro="Endpoints of your applications, and what was delivered to them.">
        <Button kind="primary" disabled={!may("admin")} title={may("admin") ? undefined : "Needs the scope admin"} onPress={() => setAdding(true)}>Add endpoint…</Button>
      </PageHead>
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && loading && !done && <Loading />}
      {items.length === 0 && done && <NoEndpoints />}
      {items.length > 0 && (
        <div class="card flush">
          <Table label="Endpoints" rows={items} keyOf={({ id }) => id} href={({ id }) => `/webhooks/${id}`} columns={[
            { head: "URL", cell: ({ url, description }) => <>{url}{description && <span class="webhooks-description">{description}</span>}</> },
            { head: "State", cell: ({ state }) => <StateChip state={state} /> },
            { head: "Deliveries", cell: (endpoint) => <Health endpoint={endpoint} /> },
            { head: "Events", wide: true, cell: ({ events }) => <code>{events.join(", ")}</code> },
            { head: "Added", wide: true, cell: ({ created_at: at }) => <Time at={at} /> },
          ]} />
          <More done={done} loading={loading} more={more} />
        </div>
      )}
      {adding && <EndpointForm endpoint={null} close={() => setAdding(false)} done={finish} />}
      {created && <Created endpoint={created} />}
    </>
  );
}
