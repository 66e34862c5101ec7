// A process that is killed inside its function: `node once-child.mjs KEY`. It prints its downstream key once it has begun.

import { Mailonce } from "mailonce";

await new Mailonce().once(
  process.argv[2],
  async (run) => {
    console.log(run.downstreamKey);
    await new Promise((resolve) => setTimeout(resolve, 60_000));
  },
  { leaseS: 1 },
);
