// How email leaves: the transports of the server's configuration, with a test send.
import { get } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { useLoad } from "../../api/load";
import { Code } from "../../components/Code";
import { Loading } from "../../components/Empty";
import { Problem } from "../../components/Problem";
import { loadNames, type Transports as TransportList } from "../stops/scopes";
import { Transports } from "../stops/Transports";
import { SetupPage } from "./SetupPage";
import { TRANSPORT_EXAMPLE } from "./snippets";

async function load(signal: AbortSignal) {
  const [names, list] = await Promise.all([loadNames(signal), get<TransportList>("/v1/transports", {}, { signal })]);
  return { names, list };
}

export function TransportSection() {
  const { data, problem, reload } = useLoad(load, []);
  useRefreshOn("transport.*,handoff.*", () => void reload());
  return (
    <SetupPage section="transports">
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={4} />}
      {data && <Transports list={data.list} names={data.names} heading={false} reload={() => void reload()} />}
      <section class="card stack" aria-labelledby="add-transport">
        <h2 id="add-transport">Add a transport</h2>
        <p>Transports are part of the configuration of the server, so that no API key can send mail elsewhere. Add one to <code>mailonce.toml</code> and start the server again.</p>
        <Code label="the configuration of a transport" text={TRANSPORT_EXAMPLE} wrap />
      </section>
    </SetupPage>
  );
}
