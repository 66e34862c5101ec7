// Stop and budgets: what must not leave, how much may, and by which way.
import { get } from "../../api/client";
import { useRefreshOn } from "../../api/events";
import { useLoad } from "../../api/load";
import { usePolling } from "../../api/poll";
import { Loading } from "../../components/Empty";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { Budgets } from "./Budgets";
import { loadNames, type Stop, type Transports as TransportList } from "./scopes";
import { StopLevels } from "./StopLevels";
import { Transports } from "./Transports";

async function load(signal: AbortSignal) {
  const [stops, names, transports] = await Promise.all([get<{ data: Stop[] }>("/v1/stops", {}, { signal }), loadNames(signal), get<TransportList>("/v1/transports", {}, { signal })]);
  return { stops: stops.data, names, transports };
}

export function Stops() {
  const { data, problem, reload } = useLoad(load, []);
  const refresh = () => void reload();
  useRefreshOn("stop.*,transport.*,handoff.*", refresh);
  // Stops of the operators of other teams, and the end of a release, have no event in this team.
  const releasing = data?.stops.some(({ state }) => state === "releasing");
  usePolling(releasing ? 1500 : 10_000, refresh);
  return (
    <>
      <PageHead title="Stop and budgets" intro="Keep email from leaving, limit how much may leave, and see which transports work." />
      {problem && <Problem problem={problem} retry={reload} />}
      {!data && !problem && <Loading lines={6} />}
      {data && (
        <>
          <StopLevels stops={data.stops} names={data.names} transports={data.transports.data.map(({ name }) => name)} reload={refresh} />
          <Budgets names={data.names} />
          <Transports list={data.transports} names={data.names} reload={refresh} />
        </>
      )}
    </>
  );
}
