// Plays the turns of a model with the tools that Mastra makes.

import { mcp, tools } from "./mastra-tools.mjs";

const statuses = [];
for (const context of JSON.parse(process.env.TURNS)) {
  const answer = await tools.mailonce_send_email.execute({ context });
  statuses.push((answer.structuredContent ?? answer).status);
}
console.log(JSON.stringify(statuses));
await mcp.disconnect();
