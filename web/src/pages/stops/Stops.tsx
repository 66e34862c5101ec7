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
  const [stops, transports] = await Promise.all([get<{ data: Stop[] }>("/v1/stops", {}, { signal }), get<TransportList>("/v1/transports", {}, { signal })]);
  return { stops: stops.data, transports };
}

export function Stops() {
  const { data, problem: stopsProblem, reload } = useLoad(load, []);
  // Names change rarely and can be many, so they are not polled.
  const { data: names, problem: namesProblem, reload: reloadNames } = useLoad(loadNames, []);
  const problem = stopsProblem ?? namesProblem;
  const retry = async () => void (await Promise.all([reload(), reloadNames()]));
  const refresh = () => void reload();
  useRefreshOn("stop.*", () => void reloadNames());
  useRefreshOn("stop.*,transport.*,handoff.*", refresh);
  // Stops of the operators of other teams, and the end of a release, have no event in this team.
  const releasing = data?.stops.some(({ state }) => state === "releasing");
  usePolling(releasing ? 1500 : 10_000, refresh);
  return (
    <>
      <PageHead title="Stop and budgets" intro="Keep email from leaving, limit how much may leave, and see which transports work." />
      {problem && <Problem problem={problem} retry={retry} />}
      {!(data && names) && !problem && <Loading lines={6} />}
      {data && names && (
        <>
          <StopLevels stops={data.stops} names={names} transports={data.transports.data.map(({ name }) => name)} reload={refresh} />
          <Budgets names={names} />
          <Transports list={data.transports} names={names} reload={refresh} />
        </>
      )}
    </>
  );
}
