// The package from CommonJS, with its types.

import { Mailonce, deriveKey } from "mailonce";
import { Double } from "mailonce/testing";

const mo: Mailonce = new Double().client();
const key: string = deriveKey({ type: "t", entity: "e" }, "a@example.com");
void mo.emails.send({ from: "a@example.com", to: "b@example.com" }, { idempotencyKey: key });
// @ts-expect-error nothing names this mail
void mo.emails.send({ from: "a@example.com", to: "b@example.com" });
