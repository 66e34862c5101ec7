// Loading for pages: one object, or the pages of a list. Both keep what they have while they load again.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, type Query } from "./client";
import { asProblem, type ApiProblem } from "./problem";
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

/** The pages of a list with cursors. `more()` loads the next page; `reload()` loads the first one again. */
export function usePages<T>(path: string, query: Query): Pages<T> {
  const empty: PagesState<T> = { items: [], cursor: null, problem: null, loading: true, done: false };
  const [state, setState] = useState(empty);
  const running = useRef<AbortController | null>(null);
  const text = JSON.stringify(query);
  const load = async (cursor: string | null, before: T[]) => {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    setState((old) => ({ ...old, loading: true, problem: null }));
    try {
      const page = await get<Page<T>>(path, { ...(JSON.parse(text) as Query), cursor }, { signal: controller.signal });
      if (controller.signal.aborted) return;
      const next = page.next_cursor ?? null;
      setState({ items: [...before, ...page.data], cursor: next, problem: null, loading: false, done: !next });
    } catch (error) {
      if (!controller.signal.aborted) setState((old) => ({ ...old, problem: asProblem(error), loading: false }));
    }
  };
  useEffect(() => {
    setState(empty);
    void load(null, []);
    return () => running.current?.abort();
  }, [path, text]);
  return {
    ...state,
    more: async () => (state.loading || state.done ? undefined : load(state.cursor, state.items)),
    reload: () => load(null, []),
    update: (change) => setState((old) => ({ ...old, items: change(old.items) })),
  };
}
