// Which methods of useSend's SDK are called with what.
"use strict";
const { UseSend } = require("usesend-js");

const mail = (subject) => ({ from: "agent@mailonce.test", to: "ada@example.com", subject, text: "Thank you." });
const later = () => new Date(Date.now() + 3_600_000).toISOString();

module.exports = {
  package: "usesend-js",
  manifest: "../package.json",
  goal: 14,
  client: ({ url, key }) => new UseSend(key, `${url}/compat/usesend`),
  hidden: ["mergeHeaders", "fetchRequest", "post", "get", "put", "patch", "delete"],
  data: (answer) => (answer && "data" in answer ? (answer.data ?? undefined) : answer),
  placeholders: () => ["x", "x", {}],
  calls: [
    ["emails.send", () => [mail("u send")], "emailId", (s, data) => (s.email = data.emailId)],
    ["emails.create", () => [mail("u create")], "emailId"],
    ["emails.batch", () => [[mail("u one"), mail("u two")]], "0.emailId"],
    ["emails.get", (s) => [s.email], "latestStatus"],
    ["prepare", async (s) => (s.later = (await s.client.emails.send({ ...mail("u later"), scheduledAt: later() })).data.emailId)],
    ["emails.update", (s) => [s.later, { scheduledAt: later() }], "emailId"],
    ["emails.cancel", (s) => [s.later], "emailId"],
    ["domains.create", () => [{ name: "usesend.example.com", region: "us-east-1" }], "dnsRecords", (s, data) => (s.domain = data.id)],
    ["domains.list", () => [], "0.name"],
    ["domains.get", (s) => [s.domain], "status"],
    ["domains.verify", (s) => [s.domain], "message"],
    ["domains.delete", (s) => [s.domain], "success"],
    ["analytics.emailTimeSeries", () => [{ days: "7" }], "result.6.sent"],
    ["analytics.reputationMetrics", () => [], "bounceRate"],
    ["webhooks", () => ["whsec_x"], "constructEvent"],
  ],
};
