// Loading for pages: one object, or the pages of a list. The hooks keep what they have while they load again.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { isReturning } from "../router";
import { get, type Query } from "./client";
import { asProblem, type ApiProblem } from "./problem";
import { onTeamChange } from "./team-data";
import type { Page } from "./types";

export interface Loaded<T> {
  data: T | null;
  problem: ApiProblem | null;
  loading: boolean;
  reload: () => Promise<void>;
  /** Replaces the data, for example with the answer of a change. */
  set: (data: T) => void;
}

/** Calls `load` at first and whenever `deps` change. Answers that arrive late are dropped. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, deps: readonly unknown[]): Loaded<T> {
  const [state, setState] = useState<{ data: T | null; problem: ApiProblem | null; loading: boolean }>({ data: null, problem: null, loading: true });
  const running = useRef<AbortController | null>(null);
  const reload = useCallback(async () => {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    setState((old) => ({ ...old, loading: true }));
    try {
      const data = await load(controller.signal);
      if (!controller.signal.aborted) setState({ data, problem: null, loading: false });
    } catch (error) {
      if (!controller.signal.aborted) setState((old) => ({ ...old, problem: asProblem(error), loading: false }));
    }
  }, deps);
  useEffect(() => {
    setState({ data: null, problem: null, loading: true });
    void reload();
    return () => running.current?.abort();
  }, [reload]);
  const set = useCallback((data: T) => setState({ data, problem: null, loading: false }), []);
  return { ...state, reload, set };
}

const PAGE_ROWS = 100;
/** Nobody chooses from a longer list of names. */
const MAX_NAMES = 1000;

/** The rows of a list with cursors, page by page, up to a limit: the names of a picker. */
export async function getAll<T>(path: string, signal: AbortSignal): Promise<T[]> {
  const rows: T[] = [];
  let cursor: string | null | undefined;
  do {
    const page = await get<Page<T>>(path, { limit: PAGE_ROWS, cursor }, { signal });
    rows.push(...page.data);
    cursor = page.next_cursor;
  } while (cursor && rows.length < MAX_NAMES);
  return rows;
}

export interface Pages<T> {
  items: T[];
  problem: ApiProblem | null;
  loading: boolean;
  /** No further page exists. */
  done: boolean;
  more: () => Promise<void>;
  reload: () => Promise<void>;
  update: (change: (items: T[]) => T[]) => void;
}

interface PagesState<T> {
  items: T[];
  cursor: string | null;
  problem: ApiProblem | null;
  loading: boolean;
  done: boolean;
}

/** The rows of lists that were left, so that the back button shows them at once. */
type LeftLists = Map<string, PagesState<unknown>>;
let leftLists: LeftLists = new Map();
const MAX_LEFT = 5;

// A page of the earlier team that ends after the change writes to the earlier map, which nobody reads.
onTeamChange(() => (leftLists = new Map()));

function remember(left: LeftLists, name: string, state: PagesState<unknown>): void {
  left.delete(name);
  left.set(name, state);
  const oldest = left.keys().next();
  if (left.size > MAX_LEFT && !oldest.done) left.delete(oldest.value);
}

/**
 * The pages of a list with cursors. `more()` loads the next page; `reload()` loads the first one again. After `patience` empty
 * pages in a row it stops without being done, so that a rare filter does not read a whole ledger unasked.
 */
export function usePages<T>(path: string, query: Query, patience = Infinity): Pages<T> {
  const empty: PagesState<T> = { items: [], cursor: null, problem: null, loading: true, done: false };
  const text = JSON.stringify(query);
  const name = `${path} ${text}`;
  const left = useRef(leftLists).current;
  const kept = isReturning() ? (left.get(name) as PagesState<T> | undefined) : undefined;
  const [state, setState] = useState(kept ?? empty);
  const running = useRef<AbortController | null>(null);
  const latest = useRef(state);
  latest.current = state;
  const isFirst = useRef(true);
  const load = async (cursor: string | null, before: T[]) => {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    setState((old) => ({ ...old, loading: true, problem: null }));
    try {
      let page = await get<Page<T>>(path, { ...(JSON.parse(text) as Query), cursor }, { signal: controller.signal });
      // With a filter the server looks through a part of the list at a time, and a page can be empty while more follow.
      for (let empty = 1; page.data.length === 0 && page.next_cursor && empty < patience; empty += 1) {
        page = await get<Page<T>>(path, { ...(JSON.parse(text) as Query), cursor: page.next_cursor }, { signal: controller.signal });
      }
      if (controller.signal.aborted) return;
      const next = page.next_cursor ?? null;
      setState({ items: [...before, ...page.data], cursor: next, problem: null, loading: false, done: !next });
    } catch (error) {
      if (!controller.signal.aborted) setState((old) => ({ ...old, problem: asProblem(error), loading: false }));
    }
  };
  useEffect(() => {
    if (!(isFirst.current && kept)) {
      setState(empty);
      void load(null, []);
    }
    isFirst.current = false;
    return () => {
      running.current?.abort();
      if (!latest.current.loading) remember(left, name, latest.current as PagesState<unknown>);
    };
  }, [path, text]);
  return {
    ...state,
    more: async () => (state.loading || state.done ? undefined : load(state.cursor, state.items)),
    reload: () => load(null, []),
    update: (change) => setState((old) => ({ ...old, items: change(old.items) })),
  };
}
