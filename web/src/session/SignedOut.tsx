// What a browser without a session shows: how to sign in, which leads back to the page.
import { Code } from "../components/Code";
import { Button } from "../components/Button";
import { path } from "../router";
import { loadSession } from "./session";

export function SignedOut() {
  const signIn = `/sign-in?next=${encodeURIComponent(path.value)}`;
  return (
    <main class="centered">
      <div class="card narrow stack">
        <h1 tabIndex={-1}>Sign in to mailonce</h1>
        <p>This browser is not signed in. You sign in with a link that works once, for ten minutes, or by <a href={signIn}>your identity provider</a> where this server has one.</p>
        <h2>On your own machine</h2>
        <p><code>mailonce dev</code> prints a sign-in link when it starts. Open it in this browser.</p>
        <h2>On a server</h2>
        <p>Make a link with the command line, or ask an administrator of your team for one:</p>
        <Code text={"mailonce login --name Ada --role approver --address ada@example.com"} label="the command" />
        <p>Roles are <code>viewer</code>, <code>approver</code> and <code>admin</code>. Opening the link changes nothing; the button on its page signs you in.</p>
        <p class="row">
          <Button kind="primary" onPress={loadSession}>I have signed in</Button>
          <a href={signIn}>Other ways to sign in</a>
        </p>
      </div>
    </main>
  );
}
