// The next command of an empty page, for what the command line has no verb for: a call of the API with curl.
import { Code } from "./Code";

/** Variables stand for the address and the key, so that the command can be pasted into any shell that has them. */
export const ApiCommand = ({ path, body }: { path: string; body: Record<string, unknown> }) => (
  <Code label="the command" text={`curl -s $MAILONCE_URL${path} -H "Authorization: Bearer $MAILONCE_API_KEY" \\\n  -H 'Content-Type: application/json' -d '${JSON.stringify(body)}'`} />
);
