// Starts the dashboard: session, router, shortcuts, and the page that belongs to the path.
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Empty } from "./components/Empty";
import { startKeys } from "./components/keys";
import { Layout } from "./components/Layout";
import { PageHead } from "./components/PageHead";
import { Problem } from "./components/Problem";
import { pages } from "./pages";
import { arrive, match, path, startRouter } from "./router";
import { loadSession, sessionState } from "./session/session";
import { SignedOut } from "./session/SignedOut";
import "./styles/app.css";

function findPage(pathname: string) {
  for (const entry of pages) {
    const found = match(entry.path, pathname);
    if (found) return { entry, params: found.params };
  }
  return null;
}

function NotFound() {
  return (
    <>
      <PageHead title="Page not found" />
      <Empty title="There is no page at this address"><p><a href="/">Go to the overview</a></p></Empty>
    </>
  );
}

function CurrentPage() {
  const found = findPage(path.value);
  const visits = useRef(0);
  useEffect(() => {
    arrive(found?.entry.title ?? "Page not found", visits.current > 0);
    visits.current += 1;
  }, [path.value]);
  if (!found) return <NotFound />;
  const Page = found.entry.page;
  return <Page key={found.entry.path} params={found.params} />;
}

function App() {
  const state = sessionState.value;
  if (state.status === "loading") return <p class="boot"><img src="/assets/icon.svg" alt="" width={22} height={22} />mailonce</p>;
  if (state.status === "out") return <SignedOut />;
  if (state.status === "failed") return <main class="centered"><h1>mailonce</h1><Problem problem={state.problem} retry={loadSession} /></main>;
  return <Layout session={state.session} key={state.session.team.id}><CurrentPage /></Layout>;
}

const root = document.getElementById("app");
if (root) {
  startRouter((pathname) => findPage(pathname) !== null);
  startKeys();
  // The name of the page, which is painted before the script has loaded.
  root.replaceChildren();
  render(<App />, root);
  void loadSession();
}
