// For what has no event: asks again while the tab is visible.
import { useEffect, useRef } from "preact/hooks";

export function usePolling(everyMs: number, action: () => void): void {
  const latest = useRef(action);
  latest.current = action;
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (!document.hidden) latest.current();
    }, everyMs);
    return () => window.clearInterval(timer);
  }, [everyMs]);
}
