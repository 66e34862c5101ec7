// Measures the first contentful paint of pages of the dashboard in Chromium, each time with an empty cache. Prints the
// milliseconds of all loads by page, as JSON. `scripts/bench --only paint` is the way to run it.
//
// Needs MAILONCE_URL, MAILONCE_SIGN_IN, MAILONCE_API_KEY and CHROMIUM, and the packages of web/package.json.
import { withBrowser } from "../web/tests/browser.mjs";

const LOADS = 20;
const PAGES = { home: "/", emails: "/emails" };

/** Runs in the page: its first contentful paint, in milliseconds since the navigation began. */
const firstPaint = () => new Promise((resolve) => {
  const take = (list) => list.getEntriesByName("first-contentful-paint").forEach(({ startTime }) => resolve(startTime));
  new PerformanceObserver(take).observe({ type: "paint", buffered: true });
});

const times = {};
await withBrowser(async ({ page, context, goto }) => {
  const debug = await context.newCDPSession(page);
  await debug.send("Network.setCacheDisabled", { cacheDisabled: true });
  for (const [name, path] of Object.entries(PAGES)) {
    // The first load warms up the browser and the server, and does not count.
    for (let load = 0; load <= LOADS; load += 1) {
      await goto(path);
      const time = await page.evaluate(firstPaint);
      if (load > 0) (times[name] ??= []).push(time);
    }
  }
});
console.log(JSON.stringify(times));
