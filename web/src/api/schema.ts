// Generated from openapi.json by `npm run types`. Do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description Acknowledgement of a leased message, for `ack`, `nack` and `extend`. */
        AcknowledgementBody: {
            /**
             * Format: int32
             * @description For `nack`: seconds until the message is offered again, at most 86400; 0 by default.
             */
            delay_s?: number | null;
            /** @description Token of the lease. */
            lease: string;
            /**
             * Format: int32
             * @description For `extend`: new duration of the lease from now in seconds, 1 to 600; 30 by default.
             */
            ttl_s?: number | null;
        };
        /** @description The message after an acknowledgement. */
        AcknowledgementResultBody: {
            lease?: components["schemas"]["LeaseBody"] | null;
            message: components["schemas"]["MessageBody"];
        };
        /** @description Who did it. */
        ActorBody: {
            /** @description Id of the API key or the person. For the system: `server` or `cli`. */
            id: string;
            /**
             * @description `api_key`, `person` or `system`.
             * @enum {string}
             */
            kind: "api_key" | "person" | "notification_target" | "system";
        };
        /** @description One address or a list of addresses. */
        Addresses: string | string[];
        /** @description An API key, without its secret. */
        ApiKeyBody: {
            /** @description IP addresses and CIDR blocks that may use the key; any when empty. */
            allow_ips: string[];
            allowed_senders: string[];
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            expires_at?: string | null;
            id: string;
            inboxes: string[];
            /**
             * Format: date-time
             * @description When the key was last used, to the minute.
             */
            last_used_at?: string | null;
            name: string;
            /** Format: int32 */
            rate_per_s?: number | null;
            /** Format: date-time */
            revoked_at?: string | null;
            scopes: ("send" | "read" | "reply" | "secrets" | "approve" | "admin" | "operator")[];
            /** @description The first characters of the secret. */
            secret_prefix: string;
        };
        /** @description The API keys of the team, newest first. */
        ApiKeyPage: {
            data: components["schemas"]["ApiKeyBody"][];
            /** @description Always null: the list has one page. */
            next_cursor?: string | null;
        };
        /** @description How people who may decide are told of questions, each with an approval link of their own. */
        ApprovalEmailsBody: {
            /** @description Sender, an address that the team may send from; null means that nobody is told by email, only notification targets. */
            from?: string | null;
            /** @description After how long the next person is told, such as `30m`, from 1 minute to 1 day; null means that all are told at once. */
            next_after?: string | null;
            quiet_hours?: components["schemas"]["QuietHoursBody"] | null;
        };
        /** @description An approval link. */
        ApprovalLinkBody: {
            /**
             * Format: date-time
             * @description When the link stops working.
             */
            expires_at: string;
            /** @description The link. Whoever has it can decide this question as the person. */
            url: string;
        };
        /** @description The consumer that reports the use. */
        ArtifactAppliedBody: {
            /** @description The `for` that consumed the artifact. */
            for: string;
        };
        /** @description An artifact: a code or link found in a message. */
        ArtifactBody: {
            /**
             * Format: date-time
             * @description When its use was reported; null before that.
             */
            applied_at?: string | null;
            /**
             * Format: int32
             * @description Confidence of the extraction, 0 to 100.
             */
            confidence: number;
            /**
             * Format: date-time
             * @description When it was consumed; null before that.
             */
            consumed_at?: string | null;
            /** @description The `for` of the call that consumed it. */
            consumed_for?: string | null;
            /**
             * Format: date-time
             * @description When it was extracted from the message.
             */
            found_at: string;
            /** @description Id of the artifact. */
            id: string;
            /** @description Id of the inbox. */
            inbox_id: string;
            /** @description The code or link with its secret part masked. */
            masked: string;
            /** @description Id of the message. */
            message: string;
            /** @description Reasons for the confidence. */
            reasons: string[];
            /**
             * Format: int32
             * @description Revision; grows with every change.
             */
            rev: number;
            /** @description Address of the sender of the message. */
            sender: string;
            /** @description Whether the sender of the message was authenticated. */
            sender_authenticated: boolean;
            /**
             * @description `code` or `link`.
             * @enum {string}
             */
            type: "code" | "link";
            /** @description The code or link; null unless you consumed it or your API key has the scope `secrets`. */
            value?: string | null;
            /** @description Id of the watch that it was consumed under. */
            watch?: string | null;
        };
        /** @description The artifacts of a message. */
        ArtifactPage: {
            /** @description Ambiguous finds. They cannot be consumed. */
            candidates: {
                [key: string]: unknown;
            }[];
            /** @description The artifacts, best first. */
            data: components["schemas"]["ArtifactBody"][];
            next_cursor?: string | null;
        };
        /** @description An attachment. */
        AttachmentBody: {
            /** @description The file's bytes in Base64. */
            content: string;
            /** @description Content-ID, for inline images. */
            content_id?: string | null;
            /** @description MIME type. */
            content_type?: string | null;
            /** @description File name. */
            filename?: string | null;
        };
        /** @description An attachment, without its bytes. `GET /v1/messages/{id}/attachments/{n}` returns the bytes. */
        AttachmentInfoBody: {
            /** @description Content-ID, if the HTML refers to the attachment. */
            content_id?: string | null;
            /** @description Declared content type; do not trust it. */
            content_type: string;
            /** @description Declared file name; do not trust it. */
            filename?: string | null;
            /** @description Whether it is displayed inside the text. */
            inline: boolean;
            /** @description Number of the attachment, for `GET /v1/messages/{id}/attachments/{n}`. */
            n: number;
            /**
             * Format: int64
             * @description Size in bytes.
             */
            size: number;
        };
        /** @description One attempt to send a handoff. */
        AttemptBody: {
            /**
             * Format: date-time
             * @description When the `sending` marker was committed; the start of the attempt if it never got that far.
             */
            at: string;
            /**
             * Format: int32
             * @description SMTP or HTTP status code of the reply.
             */
            code?: number | null;
            /**
             * Format: date-time
             * @description When the outcome was recorded; null while the attempt is running.
             */
            ended_at?: string | null;
            /** @description Whether an earlier attempt may have succeeded, so that the recipient may get the email twice. */
            may_duplicate: boolean;
            /**
             * Format: int32
             * @description Number of the attempt within its handoff, from 1.
             */
            number: number;
            /**
             * @description `accepted deferred refused unknown`; null while the attempt is running.
             * @enum {string|null}
             */
            outcome?: "accepted" | "deferred" | "refused" | "unknown" | null;
            /**
             * @description The last phase that was reached: `connect tls greet login mail rcpt data final`.
             * @enum {string|null}
             */
            phase?: "connect" | "tls" | "greet" | "login" | "mail" | "rcpt" | "data" | "final" | null;
            /** @description The next hop's own id for the message. */
            remote_id?: string | null;
            /** @description Text of the next hop's reply. */
            reply: string;
            /** @description Name of the transport. */
            transport?: string | null;
        };
        /** @description An entry of the audit log. */
        AuditEntryBody: {
            /** @description What was changed, as `kind/id`. */
            about: string;
            /** @description What was done, such as `rule.changed`. */
            action: string;
            actor: components["schemas"]["ActorBody"];
            /** @description Values after the change, where they differ. `changed` names further fields whose values are left out. */
            after?: {
                [key: string]: unknown;
            } | null;
            /** Format: date-time */
            at: string;
            /** @description Values before the change, where they differ. Secrets, content and addresses are left out. */
            before?: {
                [key: string]: unknown;
            } | null;
            /** @description What is wrong with the entry, if it does not match its hash. Fields that cannot be read are empty. */
            fault?: string | null;
            /** @description Where the call came from: `server`, `cli`, or an id that stands for an IP address. */
            from: string;
            /** @description Hash of this entry: it covers all fields above and the team. */
            hash: string;
            /** @description Names of ids in this entry, as far as they are known. The hash does not cover them. */
            names: {
                [key: string]: string;
            };
            /** @description Hash of the entry before this one. */
            prev: string;
            /**
             * Format: int64
             * @description Number of the entry within its team: from 1, without gaps.
             */
            seq: number;
        };
        /** @description A page of the audit log, oldest first. */
        AuditPageBody: {
            data: components["schemas"]["AuditEntryBody"][];
            /** @description The latest entry. */
            head: components["schemas"]["ChainLinkBody"];
            /** @description Pass it as `after` for the next page; null at the end. */
            next_cursor?: string | null;
            /** @description The entry before the first one that is kept. Number 0 with a hash of zeros, unless older entries expired. */
            start: components["schemas"]["ChainLinkBody"];
            /** @description Id of the team, which the hashes cover. */
            team: string;
        };
        /** @description Results of the sender authentication. */
        AuthBody: {
            /**
             * @description Result of DKIM.
             * @enum {string}
             */
            dkim: "pass" | "fail" | "softfail" | "neutral" | "none" | "temperror" | "permerror";
            /**
             * @description Result of DMARC.
             * @enum {string}
             */
            dmarc: "pass" | "fail" | "softfail" | "neutral" | "none" | "temperror" | "permerror";
            /** @description Domain of the From header. */
            domain?: string | null;
            /**
             * @description Result of SPF.
             * @enum {string}
             */
            spf: "pass" | "fail" | "softfail" | "neutral" | "none" | "temperror" | "permerror";
            /**
             * @description Overall verdict of mailonce: `pass`, `fail`, `none` or `temperror`.
             * @enum {string}
             */
            verdict: "pass" | "fail" | "none" | "temperror";
        };
        /** @description Why a message counts as automatic. */
        AutomaticReasonBody: {
            /** @description Whether the inbox setting `reply_to_likely_automatic` can allow a reply anyway. */
            overridable: boolean;
            /** @description What marks the message as automatic, such as a header. */
            reason: string;
        };
        /** @description User name and password for HTTP basic authentication. */
        BasicAuthBody: {
            password: string;
            username: string;
        };
        /** @description Why one item of a batch was refused. */
        BatchItemError: {
            /** @description Error code, as in a problem. */
            code: string;
            /** @description The invalid field, if the error is about one. */
            field?: string | null;
            /** @description Position of the item in the batch, from 0. */
            index: number;
            /** @description What is wrong. */
            message: string;
            /** @description With `Prefer: policy-trace`, if a check refused the item: what each check decided, in order. */
            policy?: components["schemas"]["PolicyStepBody"][] | null;
        };
        /** @description The response to a batch. */
        BatchReceiptBody: {
            /** @description One entry per item, in order; null for an item that has an entry in `errors`. */
            data: (components["schemas"]["SendReceiptBody"] | null)[];
            errors: components["schemas"]["BatchItemError"][];
        };
        /** @description A budget and its usage. */
        BudgetBody: {
            /** @enum {string} */
            at_limit: "hold" | "refuse" | "flag";
            /** Format: date-time */
            created_at: string;
            enabled: boolean;
            id: string;
            /** Format: int64 */
            limit: number;
            /** @enum {string} */
            measure: "mails" | "recipients" | "new_recipients";
            name: string;
            /** @enum {string} */
            per: "minute" | "hour" | "day" | "month";
            /**
             * Format: int64
             * @description Amount left in the current period; null if each recipient or domain is counted on its own.
             */
            remaining?: number | null;
            /**
             * Format: date-time
             * @description When the current period ends.
             */
            resets_at: string;
            /** Format: int32 */
            rev: number;
            scope: components["schemas"]["BudgetScopeBody"];
            /**
             * Format: int64
             * @description Amount used in the current period; null if each recipient or domain is counted on its own.
             */
            used?: number | null;
        };
        /** @description A page of budgets, newest first. */
        BudgetPage: {
            data: components["schemas"]["BudgetBody"][];
            next_cursor?: string | null;
        };
        /** @description Fields of a budget to change. Absent fields keep their value. */
        BudgetPatchBody: {
            /**
             * @description `refuse`, `hold` or `flag`.
             * @enum {string|null}
             */
            at_limit?: "hold" | "refuse" | "flag" | null;
            enabled?: boolean | null;
            /** Format: int64 */
            limit?: number | null;
            /**
             * Format: int32
             * @description The `rev` that you read; the call is refused if the object has changed since.
             */
            rev: number;
        };
        /** @description How much room a budget has. */
        BudgetRoomBody: {
            id: string;
            /** Format: int64 */
            limit: number;
            name: string;
            /** Format: int64 */
            remaining: number;
            /**
             * Format: date-time
             * @description When the period ends.
             */
            resets_at: string;
        };
        /** @description Which emails count. Set exactly one field. */
        BudgetScopeBody: {
            /** @description Emails that are sent with this API key, by id. */
            api_key?: string | null;
            /** @description Emails from this inbox, by id or address. */
            inbox?: string | null;
            /** @description Emails to this address; `any`: to any address, each counted on its own. */
            recipient?: string | null;
            /** @description Emails to addresses at this domain; `any`: at any domain, each counted on its own. */
            recipient_domain?: string | null;
            /** @description `true`: every email of the team. */
            team?: boolean | null;
        };
        /** @description The caller's own ids of a call. They are stored for correlation only. */
        CallTraceBody: {
            /** @description From the `Mailonce-Call-Id` header, or from `_meta` of an MCP call. */
            id?: string | null;
            /** @description From `traceparent` (W3C Trace Context). */
            traceparent?: string | null;
        };
        /**
         * @description Limits on the number of replies. A reply beyond a limit is held.
         *
         *     Absent fields keep their value. The defaults are 3 in 300 seconds and 20 a day in a thread, and 20 a day to one
         *     recipient.
         */
        CapsBody: {
            /**
             * Format: int32
             * @description Replies to one recipient per day, over all threads.
             */
            per_recipient_per_day?: number | null;
            /**
             * Format: int32
             * @description Replies in a thread per day.
             */
            per_thread_per_day?: number | null;
            /**
             * Format: int32
             * @description Replies in a thread in total; `null` removes the limit. No limit by default.
             */
            per_thread_total?: number | null;
            /**
             * Format: int32
             * @description Replies in a thread within `window_s`.
             */
            per_window?: number | null;
            /**
             * Format: int32
             * @description Length of the window in seconds, 1 to 86400.
             */
            window_s?: number | null;
        };
        /** @description A place in the chain. */
        ChainLinkBody: {
            hash: string;
            /** Format: int64 */
            seq: number;
        };
        /** @description A claim. */
        ClaimBody: {
            /** @description Number of holders that reported completion. More than 1: the side effect happened more than once. */
            completions: number;
            /** @description Whether the completion arrived after the claim had moved on. */
            corrected: boolean;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            ended_at?: string | null;
            /** @description The latest reports of look-ups, oldest first. */
            evidence: components["schemas"]["ClaimReportBody"][];
            /**
             * Format: date-time
             * @description When it will be forgotten. Null while somebody has it or its outcome is unknown.
             */
            expires_at?: string | null;
            /** Format: int64 */
            fence: number;
            fingerprint?: string | null;
            id: string;
            /** @description What the side effect is about. */
            intent?: {
                [key: string]: unknown;
            } | null;
            key: string;
            /** @description Name of the current or lost holder. */
            label?: string | null;
            /** Format: date-time */
            lease_expires_at?: string | null;
            /** @description Whether an earlier holder may have performed the side effect. */
            may_repeat: boolean;
            /**
             * Format: date-time
             * @description When an outbox offered it. Null for other claims.
             */
            offered_at?: string | null;
            /**
             * @description `hold` or `retry`.
             * @enum {string}
             */
            on_unknown: "hold" | "retry";
            /** @description What the application wrote with `mailonce_outbox.claim`. In lists and after commands it is left out. */
            payload?: unknown;
            /** @description For `POST /v1/claims` with `Prefer: policy-trace`: what each check decided. */
            policy?: components["schemas"]["PolicyStepBody"][] | null;
            /** @description Why it failed. */
            reason?: string | null;
            /**
             * @description A person's latest decision: `done`, `retry` or `abandon`.
             * @enum {string|null}
             */
            resolved_as?: "done" | "retry" | "abandon" | null;
            /** @description What the holder reported. In lists and after commands it is left out. */
            result?: unknown;
            /** @description Whether there was a result that is not stored: it was too large, could not be read or was erased. */
            result_omitted: boolean;
            /**
             * Format: date-time
             * @description When the policy `retry` frees it.
             */
            retry_at?: string | null;
            /** Format: int32 */
            rev: number;
            /**
             * @description `claimed begun completed failed unknown abandoned`. A claim that is `claimed` without a lease is free.
             * @enum {string}
             */
            state: "claimed" | "begun" | "completed" | "failed" | "unknown" | "abandoned";
        };
        /** @description What a look-up says. */
        ClaimEvidenceBody: {
            /** @description What later callers get. */
            result?: unknown;
            /**
             * @description `done` or `not_found`.
             * @enum {string}
             */
            says: "done" | "not_found";
        };
        /** @description What the side effect is about. The key of the claim is derived from it, as that of an email with `to: []`. */
        ClaimIntentBody: {
            /** @description What it is about, such as `order_4821`. */
            entity: string;
            period?: components["schemas"]["ClaimPeriod"] | null;
            /** @description Type of the side effect, such as `invoice.create`. */
            type: string;
            /**
             * Format: int32
             * @description Increase it to do the same again on purpose; 1 by default.
             */
            version?: number | null;
        };
        /** @description A page of claims. */
        ClaimPage: {
            data: components["schemas"]["ClaimBody"][];
            next_cursor?: string | null;
        };
        /** @description The period of a recurring side effect. */
        ClaimPeriod: string | components["schemas"]["ComputedPeriodBody"];
        /** @description A report of a look-up. */
        ClaimReportBody: {
            /** Format: date-time */
            at: string;
            /** @description Id of the API key that reported it. */
            by?: string | null;
            /**
             * @description `done` or `not_found`.
             * @enum {string}
             */
            says: "done" | "not_found";
        };
        /** @description The token of a holder. */
        ClaimTokenBody: {
            token: string;
        };
        /** @description State of the clocks. */
        ClockBody: {
            /**
             * Format: int64
             * @description Milliseconds by which this node's clock is ahead of the database server's. Null without a database server.
             */
            ahead_of_database_ms?: number | null;
            /**
             * @description What confirmed the time: `operator`, `kernel`, `database` or `boot_clock`. No key expires while this is null.
             * @enum {string|null}
             */
            confirmed_by?: "operator" | "kernel" | "database" | "boot_clock" | null;
            /** @description False after a clock jump: scheduled emails wait, and no provider's deduplication window counts as open. */
            trusted: boolean;
        };
        /** @description Emails without an idempotency key through the Resend, useSend and AgentMail dialects. */
        CompatBody: {
            /**
             * @description What happens to an email that is identical to one just accepted.
             *
             *     `replay` answers with the first email, `hold` asks a person (also about nearly identical ones), `send` sends it.
             * @enum {string}
             */
            keyless: "replay" | "hold" | "send";
            /** @description How long after its acceptance an email is repeated, such as `10m`. */
            window: string;
        };
        /** @description Emails without an idempotency key through dialects. Absent fields keep their value; `null` restores the default. */
        CompatPatchBody: {
            /**
             * @description `replay`, `hold` or `send`.
             * @enum {string|null}
             */
            keyless?: "replay" | "hold" | "send" | null;
            /** @description A duration from 1 minute to 1 hour. */
            window?: string | null;
        };
        /** @description A side effect that happened. */
        CompleteClaimBody: {
            /** @description What later callers get, any JSON up to 4 MiB. */
            result?: unknown;
            token: string;
        };
        /** @description A period that the server computes from its clock. */
        ComputedPeriodBody: {
            /**
             * @description `day`, `week` (from Monday) or `month`.
             * @enum {string}
             */
            every: "day" | "week" | "month";
            /**
             * Format: int64
             * @description A call less than this many seconds before a boundary counts for the coming period; 60 by default, at most 43,200.
             */
            grace_s?: number | null;
            /** @description IANA name of the time zone, such as `Europe/Berlin`; the team's `time_zone` by default. */
            time_zone?: string | null;
        };
        /** @description A condition of a rule. */
        ConditionBody: {
            /**
             * @description What to compare.
             *
             *     `from.address from.domain from.tld recipient.address recipient.domain subject header.NAME auth.dmarc`. Outbound
             *     rules also have `recipient.is_new recipient.is_outside has_attachments is_first`, compared with `true` or
             *     `false`.
             */
            field: string;
            /**
             * @description How to compare: `is is_not contains in_list`.
             * @enum {string}
             */
            operator: "is" | "is_not" | "contains" | "in_list";
            /** @description A text, or a list of texts with `in_list`. Responses always return text. */
            value: components["schemas"]["ConditionValues"];
        };
        /** @description A text. Booleans and whole numbers are accepted and stored as text. */
        ConditionValue: string | boolean | number;
        /** @description One value, or a list of values. */
        ConditionValues: components["schemas"]["ConditionValue"] | components["schemas"]["ConditionValue"][];
        /** @description A client that a person let call `/mcp`. */
        ConnectionBody: {
            client: components["schemas"]["ConnectionClientBody"];
            /** Format: date-time */
            created_at: string;
            /**
             * Format: date-time
             * @description When the connection ends if the client does not use it.
             */
            expires_at?: string | null;
            id: string;
            /** @description Ids of the inboxes that the person allowed; null for all. */
            inboxes?: string[] | null;
            /**
             * Format: date-time
             * @description To the minute.
             */
            last_used_at?: string | null;
            person: components["schemas"]["ConnectionPersonBody"];
            /** @description What the person allowed. The role of the person may allow less by now. */
            scopes: ("send" | "read" | "reply" | "secrets" | "approve" | "admin" | "operator")[];
        };
        /** @description The client of a connection. */
        ConnectionClientBody: {
            id: string;
            /** @description What the client calls itself. Nobody checked it. */
            name: string;
            /** @description The host to which the browser was sent. */
            redirect_host: string;
        };
        /** @description A page of connections. */
        ConnectionPage: {
            data: components["schemas"]["ConnectionBody"][];
            next_cursor?: string | null;
        };
        /** @description The person of a connection. */
        ConnectionPersonBody: {
            id: string;
            name: string;
        };
        /** @description The consumer of an artifact. */
        ConsumeBody: {
            /**
             * @description The account, workflow or run that consumes the artifact. The same one gets the same response again; another is
             *     refused.
             */
            for: string;
            /** @description Id of the watch that the call belongs to. */
            watch?: string | null;
        };
        /** @description Which artifact of an inbox to consume, and for whom. */
        ConsumeMatchBody: {
            /** @description Cursor of an inbox: the latest match after it, however old. When absent, only new ones count. Not with `watch`. */
            after?: string | null;
            /** @description Who takes it: an account, workflow or run. The same value gets the same artifact again. */
            for: string;
            match?: components["schemas"]["MessageMatchBody"] | null;
            /**
             * Format: int64
             * @description How long to wait for a new one in seconds, at most 60 and until the watch ends; 0 by default. Not with `after`.
             */
            timeout?: number | null;
            /**
             * @description `code` or `link`.
             * @enum {string}
             */
            type: "code" | "link";
            /** @description Id of a watch: only messages that arrived after its start count. */
            watch?: string | null;
        };
        /** @description A consumed artifact. */
        ConsumedArtifactBody: {
            artifact: components["schemas"]["ArtifactBody"];
        };
        /**
         * @description Content guard: what to do with an email that looks like one that was just sent.
         *
         *     Each value is `off`, `flag` (send and mark it) or `hold` (ask a person first).
         */
        ContentGuardBody: {
            /**
             * @description For sends with an idempotency key or an intent, and for replies; `flag` by default.
             * @enum {string|null}
             */
            keyed?: "off" | "flag" | "hold" | null;
            /**
             * @description For sends without an idempotency key or an intent; `hold` by default.
             * @enum {string|null}
             */
            keyless?: "off" | "flag" | "hold" | null;
            /**
             * @description For sends through MCP, which always have an intent; `hold` by default. Replies through MCP count as `keyed`.
             * @enum {string|null}
             */
            mcp?: "off" | "flag" | "hold" | null;
        };
        /** @description A new API key. The secret is shown only once. */
        CreatedApiKeyBody: {
            api_key: string;
            /** Format: date-time */
            created_at: string;
            id: string;
        };
        /** @description A new notification target. The secret is shown only once. */
        CreatedNotificationTargetBody: components["schemas"]["NotificationTargetBody"] & {
            /** @description Signs the requests as Standard Webhooks describes. */
            secret: string;
        };
        /** @description A new team with its first API key, which is shown only once. */
        CreatedTeamBody: {
            api_key: string;
            id: string;
            name: string;
        };
        /** @description A person's decision. */
        DecisionBody: {
            /**
             * @description `release`, `edit` or `reject` a held email; `sent`, `resend` or `abandon` an email with an unknown outcome; `done`,
             *     `retry` or `abandon` a claim whose holder was lost.
             *
             *     `allowed_decisions` of the escalation lists the valid values.
             * @enum {string}
             */
            as: "release" | "edit" | "reject" | "sent" | "resend" | "abandon" | "done" | "retry";
            /** @description The `digest` of the email that the person saw. The decision is refused if the content differs. */
            digest?: string | null;
            edit?: components["schemas"]["EditBody"] | null;
            /** @description Reason, for people who read the escalation later. */
            reason?: string | null;
            /**
             * Format: int32
             * @description The `rev` that you read; the call is refused if the object has changed since.
             */
            rev: number;
        };
        /** @description The decision about an escalation. */
        DecisionRecordBody: {
            /**
             * @description The decision: `release edit reject sent resend abandon done retry`.
             * @enum {string}
             */
            as: "release" | "edit" | "reject" | "sent" | "resend" | "abandon" | "done" | "retry";
            /**
             * Format: date-time
             * @description When it was decided.
             */
            at: string;
            /** @description Id of the API key, session or approval link that decided; null when the escalation expired. */
            by?: string | null;
            edit?: components["schemas"]["EditBody"] | null;
            /** @description Id of the person who decided, or of the notification target whose link was used. */
            person?: string | null;
            /** @description Reason that the person gave. */
            reason?: string | null;
        };
        /** @description What the idempotency key of a send did. */
        DedupeBody: {
            /**
             * Format: date-time
             * @description When the idempotency key expires; null until the email reaches a final state.
             */
            expires_at?: string | null;
            /** @description The idempotency key, from the header or derived from the intent; null without one. */
            key?: string | null;
            /**
             * @description `first` for a new email, `replayed` for a duplicate call.
             * @enum {string}
             */
            outcome: "first" | "replayed";
            /** @description Whether the content of this call differs from that of the first call. */
            payload_differs: boolean;
            /**
             * Format: int64
             * @description Number of duplicate calls that were answered with this email.
             */
            suppressed: number;
        };
        /** @description A delivery: one arrival of mail for a recipient. */
        DeliveryBody: {
            /**
             * Format: int32
             * @description How often processing was tried.
             */
            attempt_count: number;
            /** @description Id of the earlier delivery that this one duplicates. */
            duplicate_of?: string | null;
            /** @description Id of the delivery. */
            id: string;
            /** @description Id of the inbox; null if no inbox has the address. */
            inbox_id?: string | null;
            /**
             * @description `smtp hook poll local simulated`.
             * @enum {string}
             */
            intake: "smtp" | "hook" | "poll" | "local" | "simulated";
            /** @description IP address of the client. */
            ip?: string | null;
            /** @description Error of the last attempt to process the delivery. */
            last_error?: string | null;
            /** @description Id of the message that it created. */
            message_id?: string | null;
            /** @description Why the delivery created no message; null if it did. */
            reason?: string | null;
            /**
             * Format: date-time
             * @description When it arrived.
             */
            received_at: string;
            /** @description Envelope recipient. */
            recipient: string;
            /**
             * Format: int32
             * @description Revision; grows with every change.
             */
            rev: number;
            /** @description Envelope sender; empty for a bounce, null when it is not known. */
            sender?: string | null;
            /**
             * Format: int64
             * @description Size in bytes.
             */
            size: number;
            /** @description Id of the source that delivered it, if one did. */
            source_id?: string | null;
            /**
             * @description `waiting done duplicate refused dead`.
             * @enum {string}
             */
            state: "waiting" | "done" | "duplicate" | "refused" | "dead";
        };
        /** @description A page of deliveries, newest first. */
        DeliveryPage: {
            data: components["schemas"]["DeliveryBody"][];
            next_cursor?: string | null;
        };
        /** @description A DNS record to publish. */
        DnsRecordBody: {
            name: string;
            /**
             * @description What the record is for: `ownership`, `dkim`, `spf` or `dmarc`.
             * @enum {string}
             */
            purpose: "ownership" | "dkim" | "spf" | "dmarc";
            /** @description Whether verification needs this record. The others are recommendations; adapt them to your relay. */
            required: boolean;
            /**
             * @description Result of the last check: `found`, `missing`, `different` or `unknown`; null before the first check.
             * @enum {string|null}
             */
            status?: "found" | "missing" | "different" | "unknown" | null;
            /** @description Always `TXT`. */
            type: string;
            /** @description The whole value. Some zone files need it split into strings of at most 255 characters. */
            value: string;
        };
        /** @description A sending domain. */
        DomainBody: {
            /** Format: date-time */
            checked_at?: string | null;
            /** Format: date-time */
            created_at: string;
            id: string;
            name: string;
            /** @description The DNS records to publish. */
            records: components["schemas"]["DnsRecordBody"][];
            /** Format: int32 */
            rev: number;
            /**
             * @description `pending` before the first check, `verified`, or `failed` when the last check did not find a required record.
             * @enum {string}
             */
            state: "pending" | "verified" | "failed";
            /** Format: date-time */
            verified_at?: string | null;
        };
        /** @description A page of sending domains, newest first. */
        DomainPage: {
            data: components["schemas"]["DomainBody"][];
            next_cursor?: string | null;
        };
        /**
         * @description New content for a held email.
         *
         *     Setting only one of `text` and `html` replaces both parts.
         */
        EditBody: {
            /** @description New HTML body. */
            html?: string | null;
            /** @description New subject. */
            subject?: string | null;
            /** @description New plain text body. */
            text?: string | null;
        };
        /** @description An email, without its content. */
        EmailBody: {
            /** @description Bcc addresses. */
            bcc?: string[];
            call?: components["schemas"]["CallTraceBody"] | null;
            /** @description Cc addresses. */
            cc?: string[];
            /** @description Number of handoffs in each state. */
            counts: {
                [key: string]: number;
            };
            /**
             * Format: date-time
             * @description When the email was accepted.
             */
            created_at: string;
            /**
             * Format: date-time
             * @description When the idempotency key expires; null until the email reaches a final state.
             */
            expires_at?: string | null;
            /** @description Sender. */
            from: string;
            /** @description The most important guard in `holds`, or the one that held or flagged the email. */
            guard?: string | null;
            /** @description The guards that hold the email. It leaves when none is left. */
            holds: string[];
            /** @description Id of the email. */
            id: string;
            /** @description Idempotency key; null without one. */
            key?: string | null;
            /** @description The Message-ID header, with angle brackets. */
            message_id: string;
            /** @description Id of the message that this email replies to or forwards. */
            reply_to_message?: string | null;
            /** @description Id of the email that this one resends. */
            resend_of?: string | null;
            /** @description Id of the next version, if the email was resent. */
            resent_as?: string | null;
            /**
             * Format: int32
             * @description Revision; grows with every change.
             */
            rev: number;
            /**
             * Format: date-time
             * @description When the email is due, while it is scheduled or held.
             */
            scheduled_at?: string | null;
            /**
             * Format: date-time
             * @description When the email reached a final state; null before that.
             */
            settled_at?: string | null;
            /**
             * @description `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`
             * @enum {string}
             */
            state: "scheduled" | "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "unknown" | "abandoned" | "held" | "cancelled";
            /** @description Id of the stop that keeps the email from leaving. */
            stopped_by?: string | null;
            /** @description Subject. */
            subject: string;
            /**
             * Format: int64
             * @description Number of duplicate calls that were answered with this email.
             */
            suppressed: number;
            template?: components["schemas"]["TemplateRefBody"] | null;
            /** @description Id of the thread that the email is part of. */
            thread_id?: string | null;
            /** @description To addresses. */
            to: string[];
            /**
             * Format: int32
             * @description Version of the email, from 1. Each resend is one more.
             */
            version: number;
        };
        /** @description An email with its content, handoffs, evidence and timeline. */
        EmailDetailBody: components["schemas"]["EmailBody"] & {
            attachments: components["schemas"]["SentAttachmentBody"][];
            /** @description Oldest first. */
            evidence: components["schemas"]["EvidenceBody"][];
            handoffs: components["schemas"]["HandoffBody"][];
            /** @description Your additional headers. */
            headers: {
                [key: string]: string;
            };
            /** @description HTML body; null without one, or when the retention period is over. */
            html?: string | null;
            intent?: components["schemas"]["IntentBody"] | null;
            /** @description Your own data. */
            metadata: {
                [key: string]: unknown;
            };
            /**
             * @description What happens when the outcome is unknown: `hold` waits for evidence or a person; `resend` sends once more.
             * @enum {string}
             */
            on_unknown: "hold" | "resend";
            /** @description What each check decided when the email was accepted, in order. */
            policy: components["schemas"]["PolicyStepBody"][];
            /** @description Reply-To addresses. */
            reply_to: string[];
            /** @description The latest 20 suppressed duplicate calls, newest first. */
            suppressed_calls: components["schemas"]["SuppressedCallBody"][];
            /** @description Your tags, by name. */
            tags: {
                [key: string]: unknown;
            };
            /**
             * @description Plain text body. When the retention period of the content is over, this and `html` are null, and the other parts
             *     of the content are empty.
             */
            text?: string | null;
            timeline: components["schemas"]["TimelineEntryBody"][];
        };
        /** @description A page of emails, newest first. */
        EmailPage: {
            data: components["schemas"]["EmailBody"][];
            /** @description Pass it as `cursor` to get the next page; null at the end. A page with few results may still have a next page. */
            next_cursor?: string | null;
        };
        /** @description An empty object; the body may be left out. */
        EmptyBody: Record<string, never>;
        /** @description A webhook endpoint. */
        EndpointBody: {
            /** Format: date-time */
            created_at: string;
            /** @description Cursor of the last event that was processed for this endpoint. */
            cursor: string;
            description: string;
            /**
             * @description Payload and signature format; null for mailonce's own.
             * @enum {string|null}
             */
            dialect?: "resend" | "usesend" | "agentmail" | null;
            events: string[];
            /**
             * Format: date-time
             * @description When the first failure since the last success happened; null while requests succeed.
             */
            failing_since?: string | null;
            /** @description Names of the custom headers. */
            headers: string[];
            id: string;
            inboxes: string[];
            /** @description Whether `message.received` includes the text of the message. */
            include_text: boolean;
            /** Format: int32 */
            rate_per_s?: number | null;
            /**
             * @description Why the endpoint is not enabled: `asked` (by a call), `gone` (it answered 410) or `failing` (for 14 days).
             * @enum {string|null}
             */
            reason?: "asked" | "gone" | "failing" | null;
            /** Format: int32 */
            rev: number;
            /** @description Signing secret `whsec_…`; only in the response that created or rotated it. */
            secret?: string | null;
            /** @description Number of secrets that sign requests at the moment. */
            secret_count: number;
            /**
             * @description `enabled`, `paused` or `disabled`.
             * @enum {string}
             */
            state: "enabled" | "paused" | "disabled";
            /**
             * Format: date-time
             * @description When the state last changed.
             */
            state_since: string;
            url: string;
            /** @description API version that the endpoint was created with. */
            version: string;
        };
        /** @description A page of endpoints, newest first. */
        EndpointPage: {
            data: components["schemas"]["EndpointBody"][];
            next_cursor?: string | null;
        };
        /** @description Settings of an endpoint to change. Absent fields keep their value. */
        EndpointPatchBody: {
            description?: string | null;
            events?: string[] | null;
            /** @description Replaces all custom headers. */
            headers?: {
                [key: string]: string;
            } | null;
            inboxes?: string[] | null;
            include_text?: boolean | null;
            /**
             * Format: int32
             * @description Rate limit in requests per second; `null` removes it.
             */
            rate_per_s?: number | null;
            /**
             * Format: int32
             * @description The `rev` that you read. If it is set, the call is refused when the endpoint has changed since.
             */
            rev?: number | null;
            url?: string | null;
        };
        /** @description Result of a test request. */
        EndpointTestBody: {
            /** @description Whether the endpoint answered 2xx. */
            delivered: boolean;
            /**
             * @description Why there was no response: `blocked name connect tls timeout broken`.
             * @enum {string|null}
             */
            error?: "blocked" | "name" | "connect" | "tls" | "timeout" | "broken" | "status" | null;
            /** @description The `webhook-id` of the test request. */
            id: string;
            /** Format: int32 */
            latency_ms: number;
            /** @description Start of the response body, or the error message. */
            response: string;
            /**
             * Format: int32
             * @description HTTP status of the response, if there was one.
             */
            status?: number | null;
        };
        /** @description An erasure. */
        ErasureBody: {
            /** @description What replaces the address: a keyed hash that is the same for the same person. */
            alias: string;
            counts: components["schemas"]["ErasureCountsBody"];
            /** Format: date-time */
            done_at?: string | null;
            id: string;
            /** @description Emails that may have been sent, and claims that have not ended. They are erased when that is settled. */
            in_doubt: number;
            reason?: string | null;
            /** Format: date-time */
            requested_at: string;
            /**
             * @description What it is working on: `emails`, `deliveries`, `messages`, `claims`, `records`, `waiting`, `events`, `names`,
             *     `storage` or `done`. `waiting` lasts until emails in doubt have settled and claims have ended.
             * @enum {string}
             */
            stage: "find" | "emails" | "deliveries" | "messages" | "claims" | "records" | "waiting" | "events" | "names" | "storage" | "done";
            /**
             * @description `running` or `done`.
             * @enum {string}
             */
            state: "running" | "done";
        };
        /** @description What an erasure did so far. */
        ErasureCountsBody: {
            /**
             * Format: int64
             * @description Names that were removed from the audit log.
             */
            audit_names: number;
            /**
             * Format: int64
             * @description Waiting emails that were cancelled.
             */
            cancelled: number;
            /**
             * Format: int64
             * @description Claims that were erased.
             */
            claims: number;
            /**
             * Format: int64
             * @description Arrivals without a message that were removed.
             */
            deliveries: number;
            /**
             * Format: int64
             * @description Drafts that were removed.
             */
            drafts: number;
            /**
             * Format: int64
             * @description Emails that were erased.
             */
            emails: number;
            /**
             * Format: int64
             * @description Events whose data was erased.
             */
            events: number;
            /**
             * Format: int64
             * @description Received messages that were erased.
             */
            messages: number;
            /**
             * Format: int64
             * @description Suppressions, list entries, rules, other records and API keys, endpoints, inboxes and stops in which the alias
             *     replaced the address.
             */
            records: number;
        };
        /** @description A page of erasures, newest first. */
        ErasurePage: {
            data: components["schemas"]["ErasureBody"][];
            next_cursor?: string | null;
        };
        /** @description An escalation: a question for a person. */
        EscalationBody: {
            about: components["schemas"]["EscalationSubjectBody"];
            /** @description The decisions that are allowed. */
            allowed_decisions: ("release" | "edit" | "reject" | "sent" | "resend" | "abandon" | "done" | "retry")[];
            /**
             * Format: date-time
             * @description When the escalation was opened.
             */
            created_at: string;
            /** @description Name of the person who decided; only when a single escalation is read. */
            decided_by?: string | null;
            decision?: components["schemas"]["DecisionRecordBody"] | null;
            email?: components["schemas"]["HeldEmailBody"] | null;
            /**
             * Format: date-time
             * @description When the decision was carried out.
             */
            executed_at?: string | null;
            /**
             * Format: date-time
             * @description When the escalation expires and is decided without a person.
             */
            expires_at?: string | null;
            /** @description Id of the escalation. */
            id: string;
            notifications?: components["schemas"]["NotificationStateBody"] | null;
            /** @description Id of the API key that opened the escalation. */
            opened_by?: string | null;
            /**
             * @description Why a person is asked: `cap unknown looks_duplicate overlaps approval asked loop unanswered`.
             * @enum {string}
             */
            reason: "cap" | "unknown" | "looks_duplicate" | "overlaps" | "approval" | "budget" | "asked" | "loop" | "unanswered" | "orphaned" | "claim_unknown";
            /**
             * Format: int32
             * @description Revision; grows with every change.
             */
            rev: number;
            similar_email?: components["schemas"]["SimilarEmailBody"] | null;
            /**
             * @description `open resolved expired moot`.
             * @enum {string}
             */
            state: "open" | "resolved" | "expired" | "moot";
        };
        /** @description A page of escalations, newest first. */
        EscalationPage: {
            data: components["schemas"]["EscalationBody"][];
            /** @description Pass it as `cursor` to get the next page; null at the end. A page with few results may still have a next page. */
            next_cursor?: string | null;
        };
        /** @description What an escalation is about. */
        EscalationSubjectBody: {
            /** @description Id of the claim whose holder was lost. */
            claim?: string | null;
            /** @description Id of the email. */
            email?: string | null;
            /** @description The agent's own id of the matter. */
            entity?: string | null;
            /** @description Id of the inbox. */
            inbox?: string | null;
            /** @description Id of the message. */
            message?: string | null;
            /**
             * Format: date-time
             * @description Since when the transport is missing.
             */
            missing_since?: string | null;
            /** @description The agent's question. */
            question?: string | null;
            rule?: components["schemas"]["RuleRefBody"] | null;
            /** @description Id of the thread. */
            thread?: string | null;
            /** @description The missing transport: emails wait for it, but no node has it configured. */
            transport?: string | null;
        };
        /** @description An event. */
        EventBody: {
            about: components["schemas"]["EventSubjectBody"];
            /** Format: date-time */
            at: string;
            /** @description Position of the event, `epoch-seq`; pass it as `after`. */
            cursor: string;
            data: {
                [key: string]: unknown;
            };
            id: string;
            /**
             * Format: int64
             * @description Sequence number in the team, from 1 without gaps.
             */
            seq: number;
            type: string;
        };
        /** @description A page of events, oldest first. */
        EventPage: {
            data: components["schemas"]["EventBody"][];
            /**
             * @description Pass it as `after` to read on; null when there are no events after the cursor. With a filter, even an empty page
             *     may have a next page.
             */
            next_cursor?: string | null;
        };
        /** @description The object that an event is about. */
        EventSubjectBody: {
            id: string;
            kind: string;
            /** Format: int32 */
            rev: number;
        };
        /** @description Evidence: a fact about what the next hop did. */
        EvidenceBody: {
            /**
             * Format: date-time
             * @description When the evidence was recorded.
             */
            at: string;
            /**
             * Format: int32
             * @description Number of the attempt that the evidence is about; null if it is about the handoff.
             */
            attempt?: number | null;
            /** @description What was observed, such as the reply of the provider. */
            detail: string;
            /**
             * Format: int32
             * @description Number of the handoff that the evidence is about.
             */
            handoff: number;
            /**
             * @description What the evidence states: `accepted not_found silent not_accepted delivered delayed bounced complained again abandoned
             *     lost`. `silent`: the next hop could not be asked; `again`: the email is sent again; `lost`: the outcome is unknown.
             * @enum {string}
             */
            says: "accepted" | "not_found" | "silent" | "not_accepted" | "delivered" | "delayed" | "bounced" | "complained" | "again" | "abandoned" | "lost";
            /**
             * @description Where the evidence comes from: `late_reply look_up provider_event bounce person policy window crash`
             * @enum {string}
             */
            source: "late_reply" | "look_up" | "provider_event" | "bounce" | "person" | "policy" | "window" | "crash";
        };
        /** @description A side effect that surely did not happen. */
        FailClaimBody: {
            /** @description Why, up to 1,000 characters. */
            reason?: string;
            /** @description Whether the next caller may try again. */
            retryable: boolean;
            token: string;
        };
        /** @description Recipients and text of a forwarded message. */
        ForwardBody: {
            cc?: components["schemas"]["Addresses"];
            /** @description One-time token of a held email that looks like an earlier one: releases the held email. */
            distinct_token?: string | null;
            /** @description Token of the lease that you hold on the thread. */
            lease?: string | null;
            /** @description Text above the forwarded message. */
            text?: string | null;
            to: components["schemas"]["Addresses"];
        };
        /** @description One handoff: an envelope for one transport. */
        HandoffBody: {
            attempts: components["schemas"]["AttemptBody"][];
            /**
             * Format: date-time
             * @description When the next attempt is due, or the next check while the outcome is unknown.
             */
            due_at?: string | null;
            /** @description Whether some attempt may have succeeded although its outcome is unknown. */
            in_doubt: boolean;
            /** @description Whether the recipient may get the email twice. */
            may_duplicate: boolean;
            /**
             * Format: int32
             * @description Number of the handoff within its email.
             */
            number: number;
            /** @description Why the handoff waits, or why it failed. */
            reason?: string | null;
            /** @description Envelope recipients of this handoff. */
            recipients: string[];
            /**
             * @description `scheduled queued leased sending sent delivered bounced complained failed unknown abandoned held cancelled`
             * @enum {string}
             */
            state: "scheduled" | "queued" | "leased" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "unknown" | "abandoned" | "held" | "cancelled";
            /** @description Name of the transport. */
            transport: string;
        };
        /** @description State of the hand-off and of the clock. */
        HandoffStatusBody: {
            /**
             * @description False after a clock jump: keys do not expire, scheduled emails wait, and no provider's deduplication window
             *     counts as open.
             */
            clock_trusted: boolean;
            /** Format: date-time */
            ledger_time: string;
            /**
             * @description `running` or `paused`.
             * @enum {string}
             */
            state: "running" | "paused";
        };
        /** @description A header field. */
        HeaderFieldBody: {
            name: string;
            value: string;
        };
        /** @description Health of the server. */
        HealthBody: {
            clock?: components["schemas"]["ClockBody"] | null;
            /** @enum {string} */
            status: "ok" | "ready";
            /** @description The store backend, such as `sqlite` or `postgres`. */
            store?: string | null;
            /** @description Notes and warnings for the operator. */
            warnings: string[];
        };
        /**
         * @description An attachment of a held email, without its bytes. `GET /v1/emails/{id}/attachments/{n}` returns the bytes; the first is
         *     number 0.
         */
        HeldAttachmentBody: {
            /** @description Declared content type. */
            content_type?: string | null;
            /** @description File name as it will be sent. */
            filename?: string | null;
            /** @description SHA-256 of the content, in hexadecimal. */
            sha256: string;
            /**
             * Format: int64
             * @description Size in bytes.
             */
            size: number;
        };
        /** @description A held email with its content. */
        HeldEmailBody: components["schemas"]["EmailBody"] & {
            /** @description The whole email as plain text, as the approval page shows it; null when the content is no longer stored. */
            approval_text?: string | null;
            /** @description The attachments. */
            attachments: components["schemas"]["HeldAttachmentBody"][];
            /** @description Pass it with the decision, so that the decision applies only to exactly this content. */
            digest?: string | null;
            /** @description HTML body. */
            html?: string | null;
            /** @description The visible text of the HTML part. */
            html_as_text?: string | null;
            /** @description Reply-To addresses; empty when replies go to the sender. */
            reply_to: string[];
            /** @description Plain text body. */
            text?: string | null;
            /** @description Warnings for the person who decides: text and HTML that differ, replies that go elsewhere, executable files. */
            warnings: string[];
        };
        /** @description An inbox. */
        InboxBody: {
            /** @description Address of the inbox. */
            address: string;
            /** @description Name of the agent that uses the inbox. */
            agent?: string | null;
            /** @description Registrable domains whose links are allowed. When empty, links are judged by the sender's domain. */
            allowed_link_domains: string[];
            caps: components["schemas"]["CapsBody"];
            /** @description Whether the inbox receives mail for every address of its domain without an inbox. */
            catch_all: boolean;
            /** @description Your own id of the inbox. */
            client_id?: string | null;
            /**
             * Format: date-time
             * @description When the inbox was created.
             */
            created_at: string;
            /** @description Cursor of the latest message; pass it as `after`. */
            cursor: string;
            /**
             * Format: date-time
             * @description When the inbox stops receiving mail; its messages stay readable. Null for a permanent inbox.
             */
            expires_at?: string | null;
            /** @description Id of the inbox. */
            id: string;
            /** @description Whether replies have the header `Auto-Submitted`. */
            mark_auto_submitted: boolean;
            /**
             * Format: int64
             * @description Number of messages that were received.
             */
            message_count: number;
            /** @description Your own values. */
            metadata: {
                [key: string]: string;
            };
            /** @description Display name for mail from this inbox. */
            name?: string | null;
            /** @description Whether agents may reply to mail that is likely, but not certainly, automatic. */
            reply_to_likely_automatic: boolean;
            retention?: components["schemas"]["InboxRetentionBody"] | null;
            /**
             * Format: int32
             * @description Revision; grows with every change.
             */
            rev: number;
        };
        /** @description A page of inboxes, newest first. */
        InboxPage: {
            data: components["schemas"]["InboxBody"][];
            next_cursor?: string | null;
        };
        /** @description Fields of an inbox to change. Absent fields keep their value; `null` removes a value. */
        InboxPatchBody: {
            /** @description Name of the agent that uses the inbox; `null` removes it. */
            agent?: string | null;
            /** @description Registrable domains whose links are allowed, at most 50; replaces the list. */
            allowed_link_domains?: string[] | null;
            caps?: components["schemas"]["CapsBody"] | null;
            /** @description Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`. */
            catch_all?: boolean | null;
            /** @description Whether replies have the header `Auto-Submitted`. */
            mark_auto_submitted?: boolean | null;
            /** @description Your own values; replaces all of them. */
            metadata?: {
                [key: string]: string;
            } | null;
            /** @description Display name for mail from this inbox; `null` removes it. */
            name?: string | null;
            /** @description Whether agents may reply to mail that is likely, but not certainly, automatic. */
            reply_to_likely_automatic?: boolean | null;
            retention?: components["schemas"]["InboxRetentionBody"] | null;
            /**
             * Format: int32
             * @description The `rev` that you read. If it is set, the call is refused when the inbox has changed since.
             */
            rev?: number | null;
            /** @description New lifetime from now, such as `30m` or `24h`. `0s` expires the inbox now; `null` makes it permanent. */
            ttl?: string | null;
        };
        /** @description How long an inbox keeps mail. It can be shorter than the team's `retention`, and never longer. */
        InboxRetentionBody: {
            /**
             * @description Received mail, with its text and attachments: a duration from 1 hour to 3,650 days; null means as long as the team
             *     keeps it.
             */
            raw?: string | null;
        };
        /** @description A sign of prompt injection, and how often it occurs. */
        InjectionFlagBody: {
            /** @description How often it was found. */
            count: number;
            /** @description The pattern that was found. */
            flag: string;
        };
        /**
         * @description What an email is about.
         *
         *     The idempotency key is derived from the intent and `to`, so that every retry has the same key.
         */
        IntentBody: {
            /** @description What the email is about, such as `order_4821`. */
            entity: string;
            /** @description The day, week or run of a recurring email. */
            period?: string | null;
            /** @description Type of the email, such as `order.confirmation`. */
            type: string;
            /**
             * Format: int32
             * @description Increase it to send about the same entity again on purpose; 1 by default.
             */
            version?: number | null;
        };
        /** @description An idempotency key and what it is bound to. */
        KeyBody: {
            /**
             * Format: int32
             * @description How often the key was bound: 1, plus 1 for each time it was used again after it had expired.
             */
            bind_number: number;
            /**
             * @description `email`, `operation` (another call) or `forgotten`.
             * @enum {string}
             */
            bound_to: "email" | "operation" | "forgotten";
            /**
             * @description Where the key comes from: `intent` or `header`.
             * @enum {string|null}
             */
            derivation?: "intent" | "header" | null;
            /** @description Versioned hash of the canonical email; a retry with another digest is a mismatch. */
            digest?: string | null;
            /** @description Id of the email that the key is bound to. */
            email?: string | null;
            /**
             * Format: date-time
             * @description When the key expires; null until the email reaches a final state.
             */
            expires_at?: string | null;
            /** Format: date-time */
            forgotten_at?: string | null;
            /**
             * Format: int64
             * @description Number of duplicate calls that were answered with the same email.
             */
            hits: number;
            intent?: components["schemas"]["IntentBody"] | null;
            key: string;
            /** @enum {string|null} */
            state?: "scheduled" | "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "unknown" | "abandoned" | "held" | "cancelled" | null;
            /** @description The latest 20 duplicate calls, newest first. */
            suppressed_calls: components["schemas"]["SuppressedCallBody"][];
            ttl?: string | null;
        };
        /** @description A page of idempotency keys. */
        KeyPage: {
            data: components["schemas"]["KeyBody"][];
            /** @description Pass it as `cursor` to get the next page; null on the last page. A page may have fewer keys than `limit`, or none, and still have a next page. */
            next_cursor?: string | null;
        };
        /** @description New lifetime of an idempotency key. */
        KeyPatchBody: {
            ttl: components["schemas"]["TtlBody"];
        };
        /** @description A lease of a thread. */
        LeaseBody: {
            /**
             * Format: date-time
             * @description When the lease expires unless it is extended.
             */
            expires_at: string;
            /**
             * Format: int64
             * @description Fencing token: grows with each lease of the thread.
             */
            fence: number;
            /** @description Name of the worker that holds the lease. */
            holder: string;
            /** @description Pass it as `lease` when you reply, acknowledge or extend. */
            token: string;
        };
        /** @description The current lease of a thread, without its token. */
        LeaseHolderBody: {
            /**
             * Format: date-time
             * @description When the lease expires unless it is extended.
             */
            expires_at: string;
            /** @description Name of the worker that holds the lease. */
            holder: string;
            /** @description Id of the message that the lease was taken with. */
            message?: string | null;
        };
        /** @description A link in a message, with a safety verdict. mailonce never opens links. */
        LinkBody: {
            /** @description Host of the URL. */
            host?: string | null;
            /** @description Purpose of the link if it is recognized, such as `verify` or `reset`. */
            purpose?: string | null;
            /** @description Why the link has this verdict. */
            reasons: string[];
            /** @description The URL; null without the scope `secrets`, because a link may contain a secret. */
            url?: string | null;
            /**
             * @description `allowed suspicious blocked`.
             * @enum {string}
             */
            verdict: "allowed" | "suspicious" | "blocked";
        };
        /** @description An entry of a list. */
        ListEntryBody: {
            /** Format: date-time */
            created_at: string;
            /**
             * @description `send`, `receive` or `reply`.
             * @enum {string}
             */
            direction: "send" | "receive" | "reply";
            /** @description An address or a domain. */
            entry: string;
            /** @description Address of the inbox that the list belongs to; null for a list of the team. */
            inbox?: string | null;
            reason?: string | null;
            /** @description Whether the entry allows only mail with an authenticated sender. */
            require_auth: boolean;
            /**
             * @description `allow` or `block`.
             * @enum {string}
             */
            type: "allow" | "block";
        };
        /** @description All entries of a list. */
        ListEntryPage: {
            data: components["schemas"]["ListEntryBody"][];
        };
        /** @description A message, without its body. */
        MessageBody: {
            attachments: components["schemas"]["AttachmentInfoBody"][];
            auth: components["schemas"]["AuthBody"];
            automatic?: components["schemas"]["AutomaticReasonBody"] | null;
            cc: components["schemas"]["PartyBody"][];
            /** @description Position in the inbox; pass it as `after`. */
            cursor: string;
            /**
             * Format: date-time
             * @description The Date header, which the sender chose.
             */
            date?: string | null;
            /** @description `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`. */
            flags: ("message_id_reused" | "no_message_id" | "unreadable" | "cut" | "ambiguous" | "duplicate_header")[];
            /** @description Folder that the message was moved to; null if it was not. */
            folder?: string | null;
            from?: components["schemas"]["PartyBody"] | null;
            /** @description Types of the artifacts in the message: `code`, `link`. */
            has: ("code" | "link")[];
            /** @description Id of the message. */
            id: string;
            /** @description Id of the inbox that received it. */
            inbox_id: string;
            /** @description Labels of the message. */
            labels: string[];
            /** @description The Message-ID header; null without one. */
            message_id?: string | null;
            /** @description Rules in the mode `observe` that matched. Their actions were not carried out. */
            observed_rules: components["schemas"]["RuleHitBody"][];
            /**
             * @description Why the message counts as sent by the team itself: `address loop_mark message_id`; null if it does not.
             * @enum {string|null}
             */
            own_reason?: "address" | "loop_mark" | "message_id" | null;
            /** @description Start of the text, with codes and links masked. Empty in the view `min`, where all text is inside the fence. */
            preview: string;
            /** @description Whether the message is marked as read. */
            read: boolean;
            /**
             * Format: date-time
             * @description When the message arrived.
             */
            received_at: string;
            /** @description Envelope recipient, including a `+tag`. */
            recipient: string;
            /** @description Ids of the emails that replied to or forwarded the message. */
            replies: string[];
            /** @description Where a reply goes. */
            reply_target: components["schemas"]["ReplyTargetBody"];
            reply_to: components["schemas"]["PartyBody"][];
            /**
             * Format: int32
             * @description Revision; grows with every change.
             */
            rev: number;
            /** @description Rules that matched, in the order of evaluation. */
            rules: components["schemas"]["RuleHitBody"][];
            /**
             * Format: int64
             * @description Size in bytes, as received.
             */
            size: number;
            /**
             * @description `unanswered leased answered skipped`.
             * @enum {string}
             */
            state: "unanswered" | "leased" | "answered" | "skipped";
            /** @description Subject; empty without one. */
            subject: string;
            /** @description Id of its thread. */
            thread_id: string;
            to: components["schemas"]["PartyBody"][];
        };
        /** @description Conditions on the message of the artifact. */
        MessageMatchBody: {
            /** @description An address, or `@domain`. */
            from?: string | null;
            /** @description Part of the subject. */
            subject?: string | null;
        };
        /** @description A page of messages. */
        MessagePageBody: {
            data: components["schemas"]["MessageBody"][];
            /** @description Pass it as `cursor` (newest first) or as `after` (oldest first) to get the next page; null at the end. */
            next_cursor?: string | null;
        };
        /** @description Name of a header or query parameter, and its secret value. */
        NamedSecretBody: {
            name: string;
            value: string;
        };
        /** @description An API key to create. */
        NewApiKeyBody: {
            /** @description IP addresses or CIDR blocks such as `10.0.0.0/8` that may use the key; any when absent. At most 100. */
            allow_ips?: string[] | null;
            /** @description Addresses, or domains such as `@example.com`, that the key may send from; any when absent. At most 100. */
            allowed_senders?: string[] | null;
            /**
             * Format: date-time
             * @description When the key expires, as an RFC 3339 time; never when absent.
             */
            expires_at?: string | null;
            /** @description Ids or addresses of the inboxes that the key is restricted to; all when absent. */
            inboxes?: string[] | null;
            /** @description Label for people. */
            name: string;
            /**
             * Format: int32
             * @description Rate limit in calls per second; no limit when absent.
             */
            rate_per_s?: number | null;
            /** @description Any of `send`, `read`, `reply`, `secrets`, `approve`, `admin` and `operator`; `send` and `read` by default. */
            scopes?: ("send" | "read" | "reply" | "secrets" | "approve" | "admin" | "operator")[] | null;
        };
        /** @description The addressee of an approval link. */
        NewApprovalLinkBody: {
            /** @description Id of the person who decides. The role must be `approver` or `admin`. */
            person: string;
        };
        /** @description A budget to create. */
        NewBudgetBody: {
            /**
             * @description What happens to an email beyond the limit: `refuse` (default) answers `429 quota_exceeded`; `hold` accepts it,
             *     asks a person and releases it when there is room; `flag` sends it and flags it with the guard `budget`.
             * @enum {string|null}
             */
            at_limit?: "hold" | "refuse" | "flag" | null;
            enabled?: boolean | null;
            /**
             * Format: int64
             * @description How much may be sent in one period; 0 to 1,000,000,000.
             */
            limit: number;
            /**
             * @description What counts: `mails`, `recipients`, or `new_recipients`: those that the team never mailed.
             * @enum {string}
             */
            measure: "mails" | "recipients" | "new_recipients";
            name: string;
            /**
             * @description The period: `minute`, `hour`, `day` or `month`, in the team's `time_zone`.
             * @enum {string}
             */
            per: "minute" | "hour" | "day" | "month";
            scope: components["schemas"]["BudgetScopeBody"];
        };
        /** @description A side effect to claim. Give `key`, `intent` or the header `Idempotency-Key`. */
        NewClaimBody: {
            /**
             * @description `now` (default) or `later`: then `POST /v1/claims/{id}/begin` comes before the side effect.
             * @enum {string|null}
             */
            begin?: "now" | "later" | null;
            /**
             * @description A hash or summary of what the side effect contains, up to 256 characters. Another one under the same key is
             *     `422 key_mismatch`.
             */
            fingerprint?: string | null;
            /**
             * @description A random secret of this caller, the same for every retry of this call, up to 128 characters. Only the same
             *     holder gets the same `201` again.
             */
            holder?: string | null;
            intent?: components["schemas"]["ClaimIntentBody"] | null;
            /** @description The key of the claim, 1 to 256 printable ASCII characters. Keys of emails are a space of their own. */
            key?: string | null;
            /** @description A name that other callers see while you have the claim, up to 128 characters. */
            label?: string | null;
            /**
             * Format: int64
             * @description How long you have the claim unless you renew it, 1 to 3,600 seconds.
             */
            lease_s: number;
            /**
             * @description If you are lost after you began: `hold` (default) waits for evidence or a person; `retry` frees the claim once,
             *     10 minutes after your lease ended.
             * @enum {string|null}
             */
            on_unknown?: "hold" | "retry" | null;
            ttl?: components["schemas"]["TtlBody"] | null;
        };
        /** @description A domain to send from. */
        NewDomainBody: {
            /** @description The domain name, such as `example.com`. */
            name: string;
        };
        /** @description A webhook endpoint to create. */
        NewEndpointBody: {
            /** @description Where to start: an event cursor, or `0` for all stored events. When absent, with the next event. */
            after?: string | null;
            /** @description Description for people. */
            description?: string | null;
            /**
             * @description Payload and signature format: `resend` or `usesend`; mailonce's own format when absent. Events that the dialect
             *     does not have are not sent.
             * @enum {string|null}
             */
            dialect?: "resend" | "usesend" | null;
            /** @description Event types to send: types such as `email.sent`, prefixes such as `email.*`, or `["*"]` for all (default). */
            events?: string[] | null;
            /** @description Custom headers of every webhook request. The values are not shown again. */
            headers?: {
                [key: string]: string;
            } | null;
            /** @description Send only events of these inboxes, by id; all inboxes when absent. */
            inboxes?: string[] | null;
            /** @description Whether `message.received` includes the visible text of the message, with codes masked. */
            include_text?: boolean | null;
            /**
             * Format: int32
             * @description Rate limit in requests per second; no limit when absent.
             */
            rate_per_s?: number | null;
            /** @description Signing secret to use: `whsec_` and Base64 of 24 to 64 bytes. Generated when absent. */
            secret?: string | null;
            /** @description Webhook URL: `https://…`. In `dev` mode also `http://` and loopback addresses. */
            url: string;
        };
        /** @description The person to erase. */
        NewErasureBody: {
            /** @description The address, without a display name. */
            address: string;
            /** @description Why, for the audit; up to 1,000 characters. The address is removed from it. */
            reason?: string | null;
        };
        /** @description A question from an agent to a person. */
        NewEscalationBody: {
            /** @description Id of the email that the question is about. */
            email?: string | null;
            /** @description Your own id of the matter. Asking the same question about it again returns the first escalation. */
            entity?: string | null;
            /** @description Id of the message that the question is about. */
            message?: string | null;
            /** @description The question, at most 4,000 characters. */
            question: string;
            /** @description Id of the thread that the question is about. */
            thread?: string | null;
        };
        /**
         * @description An inbox to create.
         *
         *     Set `address`, or `username` and `domain`, or neither for a random address.
         */
        NewInboxBody: {
            /** @description Whole address; a random one by default. Not with `username` or `domain`. */
            address?: string | null;
            /** @description Name of the agent that uses the inbox. */
            agent?: string | null;
            /** @description Registrable domains whose links are allowed, at most 50. When empty, links are judged by the sender's domain. */
            allowed_link_domains?: string[];
            caps?: components["schemas"]["CapsBody"] | null;
            /** @description Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`. */
            catch_all?: boolean;
            /** @description Your own id of the inbox. Another call with the same `client_id` returns the same inbox. */
            client_id?: string | null;
            /** @description Domain of the address; the first domain of this installation by default. */
            domain?: string | null;
            /** @description Whether replies have the header `Auto-Submitted`, which marks them as written by a machine. */
            mark_auto_submitted?: boolean;
            /** @description Your own values. */
            metadata?: {
                [key: string]: string;
            };
            /** @description Display name for mail from this inbox. */
            name?: string | null;
            /** @description Whether agents may reply to mail that is likely, but not certainly, automatic. */
            reply_to_likely_automatic?: boolean;
            retention?: components["schemas"]["InboxRetentionBody"] | null;
            /** @description Lifetime of the inbox, such as `30m`, `24h` or `7d`; permanent when absent. */
            ttl?: string | null;
            /** @description Part of the address before the @; random by default. */
            username?: string | null;
        };
        /** @description A request for the lease of a thread. */
        NewLeaseBody: {
            /** @description Name of the agent, shown to others; the name of the API key by default. */
            holder?: string | null;
            /** @description Token of your current lease, to renew it. */
            token?: string | null;
            /**
             * Format: int32
             * @description Duration of the lease in seconds, 1 to 600; 30 by default.
             */
            ttl_s?: number | null;
        };
        /** @description An entry to add to a list. */
        NewListEntryBody: {
            /** @description An address or a domain. */
            entry: string;
            /** @description Reason, for people. */
            reason?: string | null;
            /** @description For the allow lists `receive` and `reply`: the entry allows only mail with an authenticated sender. */
            require_auth?: boolean | null;
        };
        /** @description A notification target to create. */
        NewNotificationTargetBody: {
            /**
             * @description `slack` for incoming webhooks of Slack, `webhook` for any other HTTPS endpoint.
             * @enum {string}
             */
            kind: "slack" | "webhook";
            /** @description Name, unique in the team. The audit log names it when its link decides. */
            name: string;
            /** @description Where to post. It is never shown again. */
            url: string;
        };
        /** @description A person to add. */
        NewPersonBody: {
            /** @description Address to which notices go. */
            address?: string | null;
            /**
             * @description Display name. Each name can be added once; names that are changed later, or that an identity provider sends, may
             *     be those of others too.
             */
            name: string;
            /**
             * @description `viewer` sees everything but secrets, `approver` also decides what waits for a person, `admin` manages the team.
             * @enum {string}
             */
            role: "viewer" | "approver" | "admin";
        };
        /** @description A rule to create. */
        NewRuleBody: {
            actions: components["schemas"]["RuleActionBody"][];
            /**
             * @description `inbound` (default) or `outbound`.
             * @enum {string|null}
             */
            direction?: "inbound" | "outbound" | null;
            enabled?: boolean | null;
            match: components["schemas"]["RuleMatchBody"];
            /**
             * @description `enforce` (default) or `observe`: record what the rule would do, and do nothing.
             * @enum {string|null}
             */
            mode?: "enforce" | "observe" | null;
            name: string;
            /**
             * Format: int32
             * @description Rules with a smaller number are evaluated first; 100 by default.
             */
            priority?: number | null;
        };
        /**
         * @description A source to create.
         *
         *     Its kind decides how it authenticates: `secret` for mailgun, sendgrid, resend, usesend, nylas and standard;
         *     one of `basic_auth`, `bearer_token`, `auth_header` and `auth_query` for postmark and brevo, and for sendgrid when it
         *     delivers only mail; `sns_topics` for ses.
         */
        NewSourceBody: {
            /**
             * @description What the source may deliver: `events`, `inbound` (mail) or both. The default is `events`, or `inbound` for a
             *     provider without events.
             */
            accepts?: ("events" | "inbound")[] | null;
            /** @description Whether SHA-1 signatures are accepted; only for old SNS topics. */
            allow_sha1?: boolean | null;
            /** @description The provider's API key. It fetches mail that the webhook only announces: resend, postmark (server token), nylas. */
            api_key?: string | null;
            auth_header?: components["schemas"]["NamedSecretBody"] | null;
            auth_query?: components["schemas"]["NamedSecretBody"] | null;
            /** @description Base URL of the provider's API, if it differs from the default, for example for another region. */
            base_url?: string | null;
            basic_auth?: components["schemas"]["BasicAuthBody"] | null;
            /** @description Token that the provider sends as `Authorization: Bearer`. */
            bearer_token?: string | null;
            /**
             * @description The provider: `postmark mailgun sendgrid ses resend usesend brevo nylas standard`.
             * @enum {string}
             */
            kind: "postmark" | "mailgun" | "sendgrid" | "ses" | "resend" | "usesend" | "brevo" | "nylas" | "standard";
            name: string;
            /**
             * @description How often to poll the provider for mail whose webhook was lost, such as `5m`; `10s` to `1d`. Only for resend and
             *     postmark; no polling when absent.
             */
            poll_interval?: string | null;
            /** @description The signing key: Mailgun's signing key, SendGrid's public key, or a `whsec_…` secret. */
            secret?: string | null;
            /** @description ARNs of the SNS topics that may post. */
            sns_topics?: string[] | null;
            /**
             * @description The transport that the source reports on. Its events apply only to handoffs of this transport. Not needed for a
             *     source that delivers only mail.
             */
            transport?: string | null;
        };
        /** @description A stop to create. */
        NewStopBody: {
            /**
             * @description What happens to new sends: `wait` (default) accepts and queues them, `refuse` answers `409 stopped`.
             * @enum {string|null}
             */
            mode?: "wait" | "refuse" | null;
            /** @description Why, for the people who see it; up to 1,000 characters. */
            reason?: string | null;
            scope: components["schemas"]["StopScopeBody"];
        };
        /** @description An address to suppress. */
        NewSuppressionBody: {
            /** @description The address, without a display name. */
            address: string;
            /** @description Why the address is suppressed; `manual` by default. */
            reason?: string | null;
        };
        /** @description A team to create. */
        NewTeamBody: {
            name: string;
        };
        /** @description A template to create. */
        NewTemplateBody: {
            /** @description HTML body. Values are escaped. */
            html?: string | null;
            /** @description Letters, digits, `-`, `_` and `.`, such as `order-confirmation`. */
            name: string;
            /** @description Subject, such as `Order {{ order_id }}`. */
            subject: string;
            /** @description Plain text body. Derived from `html` when absent. */
            text?: string | null;
            /** @description Default values, by variable. Variables that the template uses are added. */
            variables?: {
                [key: string]: components["schemas"]["TemplateVariableBody"];
            } | null;
        };
        /** @description A watch to start. */
        NewWatchBody: {
            /**
             * Format: int32
             * @description How often the agent may request that the email is sent again, at most 100; 1 by default.
             */
            budget?: number | null;
            /**
             * @description When the watch ends: an RFC 3339 time, or a duration from now such as `5m`.
             *
             *     10 minutes by default, at most 7 days.
             */
            deadline?: string | null;
            /** @description `true`: only messages with an authenticated sender count. */
            require_auth?: boolean | null;
        };
        /** @description A request for messages to work on. */
        NextMessagesBody: {
            /** @description Name of the agent, shown to others; the name of the API key by default. */
            holder?: string | null;
            /** @description Maximum number of messages, 1 to 10; 1 by default. */
            limit?: number | null;
            /**
             * Format: int32
             * @description Duration of each lease in seconds, 1 to 600; 30 by default.
             */
            ttl_s?: number | null;
            /**
             * Format: int64
             * @description How long to wait for a message in seconds, up to 60; 0 by default.
             */
            wait?: number | null;
        };
        /** @description An attempt to send a notice. */
        NoticeAttemptBody: {
            /** Format: date-time */
            at: string;
            /**
             * @description Why the attempt failed: `blocked name connect tls timeout broken status`.
             * @enum {string|null}
             */
            error?: "blocked" | "name" | "connect" | "tls" | "timeout" | "broken" | "status" | null;
            /** Format: int32 */
            latency_ms: number;
            /** Format: int32 */
            number: number;
            /** @description Start of the response body, or the error message. */
            response: string;
            /**
             * Format: int32
             * @description HTTP status of the response, if there was one.
             */
            status?: number | null;
        };
        /** @description A notice: one event to be sent to one endpoint. */
        NoticeBody: {
            /** @description Id of the object that the event is about. */
            about: string;
            /**
             * Format: int32
             * @description Number of attempts that were started.
             */
            attempt_count: number;
            /** @description The latest finished attempts, oldest first. */
            attempts: components["schemas"]["NoticeAttemptBody"][];
            /** Format: date-time */
            created_at: string;
            endpoint: string;
            /** @description Cursor of the event. */
            event: string;
            /** @description Id of the notice; the `webhook-id` header of every attempt. */
            id: string;
            /**
             * Format: date-time
             * @description When the next attempt is due; null while an earlier notice about the same object is pending.
             */
            next_attempt_at?: string | null;
            /** Format: int32 */
            rev: number;
            /** Format: date-time */
            settled_at?: string | null;
            /**
             * @description `pending delivered dead dropped`.
             * @enum {string}
             */
            state: "pending" | "delivered" | "dead" | "dropped";
            type: string;
        };
        /** @description A page of notices, latest events first. */
        NoticePage: {
            data: components["schemas"]["NoticeBody"][];
            next_cursor?: string | null;
        };
        /** @description How far people and notification targets were told of a question. */
        NotificationStateBody: {
            /**
             * Format: int32
             * @description How many were given up, because the last attempt failed.
             */
            failed: number;
            /**
             * Format: date-time
             * @description When the next attempt is due; null when none is.
             */
            next_at?: string | null;
            /**
             * Format: int32
             * @description How many were told.
             */
            sent: number;
        };
        /** @description A notification target, without its URL. */
        NotificationTargetBody: {
            /** Format: date-time */
            created_at: string;
            id: string;
            /** @enum {string} */
            kind: "slack" | "webhook";
            name: string;
        };
        /** @description A page of notification targets, newest first. */
        NotificationTargetPage: {
            data: components["schemas"]["NotificationTargetBody"][];
            next_cursor?: string | null;
        };
        /** @description The response of a notification target to a test. */
        NotificationTargetTestBody: {
            /** @description Why there was no response. */
            error?: string | null;
            /** @description Whether the target accepted the message. */
            ok: boolean;
            /**
             * Format: int32
             * @description HTTP status of the response; null without one.
             */
            status?: number | null;
        };
        /** @description Sender and recipients of the email that announces a new escalation. */
        NotifySettingsBody: {
            from: string;
            to: string[];
        };
        /** @description A missing transport: handoffs wait for it, but no node has it configured. */
        OrphanedTransportBody: {
            /** @description Name of the missing transport. */
            name: string;
            /**
             * Format: int64
             * @description Number of handoffs whose outcome is unknown.
             */
            unknown: number;
            /**
             * Format: int64
             * @description Number of waiting handoffs.
             */
            waiting: number;
        };
        /** @description An outbox: emails and claims that wait in your own database. */
        OutboxBody: {
            /** @description Why it is not drained, and what to do. */
            error?: string | null;
            name: string;
            /**
             * Format: int64
             * @description How long the oldest pending row has waited, in seconds.
             */
            oldest_pending_s?: number | null;
            /**
             * Format: int64
             * @description Dead letters.
             */
            parked?: number | null;
            /**
             * Format: int64
             * @description Rows that wait or are leased.
             */
            pending?: number | null;
            /**
             * @description `draining`; `stopped` while the database was restored, cloned or failed over and nobody confirmed it; or `failing`.
             * @enum {string}
             */
            state: "draining" | "stopped" | "failing";
        };
        /** @description The outboxes of the team. */
        OutboxPage: {
            data: components["schemas"]["OutboxBody"][];
        };
        /** @description A page of dead letters. */
        ParkedPageBody: {
            data: components["schemas"]["ParkedRowBody"][];
            next_cursor?: string | null;
        };
        /** @description A dead letter: a row that was not accepted, and is not tried again by itself. */
        ParkedRowBody: {
            /**
             * Format: int32
             * @description How often it was tried.
             */
            attempts: number;
            /** @description The code of the problem, such as `key_mismatch`; or `too_old`. */
            code: string;
            /** Format: date-time */
            created_at: string;
            /** @description What was wrong. */
            detail: string;
            /** @description The id that `send` or `claim` returned. */
            id: string;
            /** @description The idempotency key that the caller gave. */
            key?: string | null;
            /**
             * @description `email`, or `claim`.
             * @enum {string}
             */
            kind: "email" | "claim";
            /** @description Rows with the same order key are accepted one after the other. */
            order_key?: string | null;
            /** Format: date-time */
            parked_at: string;
        };
        /** @description A sender or recipient of a message. */
        PartyBody: {
            /** @description Address. */
            address: string;
            /** @description Display name; null without one. */
            name?: string | null;
        };
        /** @description A person of the team. */
        PersonBody: {
            address?: string | null;
            /** Format: date-time */
            created_at: string;
            id: string;
            name: string;
            /** @description Whether the person may also manage the installation. */
            operator: boolean;
            /** Format: int32 */
            rev: number;
            /** @enum {string} */
            role: "viewer" | "approver" | "admin";
            /**
             * Format: date-time
             * @description When the person last signed out everywhere. Sessions, connections and links from before are over.
             */
            signed_out_at?: string | null;
        };
        /** @description A page of people, newest first. */
        PersonPage: {
            data: components["schemas"]["PersonBody"][];
            next_cursor?: string | null;
        };
        /** @description A change of a person. Absent fields stay as they are. */
        PersonPatchBody: {
            /** @description Null removes the address. */
            address?: string | null;
            name?: string | null;
            /**
             * Format: int32
             * @description The `rev` that you read; the call is refused if the object has changed since.
             */
            rev: number;
            /** @enum {string|null} */
            role?: "viewer" | "approver" | "admin" | null;
        };
        /** @description What one check decided about an email. */
        PolicyStepBody: {
            /** @description Id of the rule or budget. */
            id?: string | null;
            /**
             * @description `request sender stop suppression list rule budget guard`
             * @enum {string}
             */
            kind: "request" | "sender" | "stop" | "suppression" | "list" | "rule" | "budget" | "guard";
            /**
             * @description Name of the rule or budget, or of the check: `request sender stops suppressions lists overlaps looks_duplicate
             *     cap`.
             */
            name: string;
            /**
             * @description `pass hold refuse flag observe`; `observe`: the rule only records what it would have done.
             * @enum {string}
             */
            verdict: "pass" | "hold" | "refuse" | "flag" | "observe";
            /** @description Reason, in words. */
            why: string;
        };
        /** @description Variables to render a template with. */
        PreviewBody: {
            /** @description Values, by variable. */
            variables?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: int32
             * @description The version; the newest by default.
             */
            version?: number | null;
        };
        /** @description An error response (RFC 9457): what went wrong and what to do next. */
        ProblemBody: Record<string, never> & {
            /** @description Error code. Branch on this value; later versions may have codes that are not listed. */
            code: string;
            /** @description What went wrong in this call. */
            detail: string;
            /** @description Path of the invalid field, or name of the invalid parameter or header. */
            field?: string | null;
            /** @description What to do next, in a sentence that a model can act on. */
            next: string;
            /**
             * @description Whether to retry: `never`, `same` (the same call with the same idempotency key) or `later` (after a pause).
             * @enum {string}
             */
            retry: "never" | "same" | "later";
            /**
             * Format: int32
             * @description The HTTP status.
             */
            status: number;
            /** @description Short title for people. */
            title: string;
            /** @description Link to the documentation page of this error code. */
            type: string;
        };
        /** @description Result of a provider's webhook request. */
        ProviderRequestSummaryBody: {
            /** @description Addresses added to the suppression list. */
            addresses_suppressed: number;
            /** @description Reports that were known already. */
            already_known: number;
            /** @description Deliveries of received mail that were stored, one per recipient. */
            deliveries_accepted: number;
            /** @description Deliveries that were duplicates. */
            deliveries_duplicate: number;
            /** @description Deliveries to unknown recipients, or refused by a rule or list. */
            deliveries_refused: number;
            /** @description Reports that are not about delivery, such as opens and clicks. */
            ignored: number;
            /** @description Reports that added new evidence about an email. */
            recorded: number;
            /** @description Reports in the request. */
            reports: number;
            /** @description Reports that match no email of this source's team and transport. */
            unmatched: number;
        };
        /** @description When nobody is told, in the team's time zone. */
        QuietHoursBody: {
            /** @description Time of day, such as `22:00`. */
            from: string;
            /** @description Time of day, such as `07:00`. */
            to: string;
        };
        /** @description Which notices to send again. Set either `since` or `after`. */
        RecoverBody: {
            /** @description Events after this cursor; `0` for all. */
            after?: string | null;
            /**
             * @description `failed` (default): dead notices, and notices that wait for a retry. `all`: also those that were delivered.
             * @enum {string|null}
             */
            include?: "failed" | "all" | null;
            /** @description Events at or after this time. */
            since?: string | null;
        };
        /** @description Result of a recovery. */
        RecoveryBody: {
            /** @description Events after this cursor are sent again. Null when the call is a replay. */
            after?: string | null;
            /** @description Number of failed notices that are due now. At 5000 there may be more: call again with a new idempotency key. */
            requeued?: number | null;
        };
        /** @description The lease to release: your own by its token, or anybody's by force. */
        ReleaseLeaseBody: {
            /** @description End the lease of another agent, to take over. Needs the scope `approve` or `admin` instead of `reply`. */
            force?: boolean;
            /** @description Token of the lease. Only its holder knows it. */
            token?: string | null;
        };
        /** @description A message with its body. */
        RenderedMessageBody: components["schemas"]["MessageBody"] & {
            artifacts: components["schemas"]["ArtifactBody"][];
            /** @description Ambiguous codes and links. They cannot be consumed. */
            candidates: {
                [key: string]: unknown;
            }[];
            /** @description Whether the whole message was processed; false when it exceeded a limit. */
            complete?: boolean | null;
            /** @description The header fields; only in the view `full`. */
            headers?: components["schemas"]["HeaderFieldBody"][] | null;
            /** @description Sanitized HTML without active or remote content; only in the view `full`. */
            html?: string | null;
            injection_flags: components["schemas"]["InjectionFlagBody"][];
            links: components["schemas"]["LinkBody"][];
            /** @description How many hidden or unsafe parts the view `min` removed, by kind. */
            removed_counts?: {
                [key: string]: unknown;
            } | null;
            /** @description The text. In the view `min` it is inside a fence with a random nonce; treat everything in it as untrusted. */
            text?: string | null;
            /**
             * @description `min plain full`, or `gone` when the message's bytes are no longer stored.
             * @enum {string}
             */
            view: "min" | "plain" | "full" | "gone";
        };
        /** @description A lease to renew. */
        RenewClaimBody: {
            /**
             * Format: int64
             * @description Duration of the lease from now, 1 to 3,600 seconds.
             */
            lease_s: number;
            token: string;
        };
        /** @description A row that is offered again. */
        ReplayedRowBody: {
            id: string;
        };
        /** @description A reply to a message. */
        ReplyBody: {
            /** @description One-time token of a held reply that looks like an earlier email: releases the held reply. */
            distinct_token?: string | null;
            /**
             * Format: int32
             * @description 0 (default) is the reply; 1, 2 and so on are intended follow-ups. Each number is sent once.
             */
            follow_up?: number;
            /** @description HTML body. */
            html?: string | null;
            /** @description Token of the lease that you hold on the thread. */
            lease?: string | null;
            /** @description Whether to quote the message below the reply. */
            quote?: boolean;
            /** @description Whether to reply to all recipients of the message. The team's own inboxes are always left out. */
            reply_all?: boolean;
            /** @description Ids of newer messages in the thread that you have read; at most 100. */
            seen?: string[];
            template?: components["schemas"]["TemplateUseBody"] | null;
            /** @description Plain text body. Required unless `html` or `template` is set. */
            text?: string | null;
        };
        /** @description Number of replies in a thread, and its limits. */
        ReplyCountsBody: {
            caps: components["schemas"]["CapsBody"];
            /** @description Replies within the window of `caps`, the latest `window_s` seconds. */
            in_window: number;
            /** @description Within the last 24 hours. */
            last_24h: number;
            /**
             * Format: int32
             * @description All replies in the thread.
             */
            total: number;
        };
        /** @description Where a reply to the message goes. */
        ReplyTargetBody: {
            /** @description Risks: `other_domain` (another organization than the sender's) and `auth_failed` (authentication failed). */
            flags: ("other_domain" | "auth_failed")[];
            /** @description The Reply-To addresses, or the sender without any. */
            to: string[];
        };
        /** @description The new transport for waiting handoffs. */
        RerouteBody: {
            /** @description Name of a transport that is configured on this node. */
            to: string;
        };
        /** @description Result of a reroute. */
        RerouteResultBody: {
            /** @description The previous transport. */
            from: string;
            /** @description Whether handoffs remain: one call moves about 5,000. Call again with a new idempotency key. */
            has_more: boolean;
            /**
             * Format: int64
             * @description Number of handoffs that were moved.
             */
            moved: number;
            /**
             * Format: int64
             * @description Number of handoffs that were not moved: being sent, unknown, in doubt, or with recipients that the new transport
             *     cannot send to separately.
             */
            not_moved: number;
            /** @description The new transport. */
            to: string;
        };
        /** @description New time of a scheduled email. */
        RescheduleBody: {
            /** @description RFC 3339 time with an offset, or a relative time such as `in 5 minutes`. */
            scheduled_at: string;
        };
        /** @description Why an email is resent. */
        ResendBody: {
            /** @description Reason, for people who read the timeline later. */
            reason?: string | null;
        };
        /** @description A decision about an unknown claim. */
        ResolveClaimBody: {
            /**
             * @description `done`, `retry` or `abandon`.
             * @enum {string}
             */
            as: "done" | "retry" | "abandon";
            /** @description What later callers get, with `done`. */
            result?: unknown;
            /**
             * Format: int32
             * @description The `rev` of the claim that you read.
             */
            rev: number;
        };
        /** @description A person's decision about an email whose outcome is unknown. */
        ResolveEmailBody: {
            /**
             * @description `sent` (the email arrived), `resend` (send the same bytes again) or `abandon` (give up).
             * @enum {string}
             */
            as: "sent" | "resend" | "abandon";
            /**
             * Format: int32
             * @description Number of the handoff to resolve; every unknown handoff when absent.
             */
            handoff?: number | null;
            /** @description Reason, for people who read the timeline later. */
            reason?: string | null;
            /**
             * Format: int32
             * @description The `rev` of the email that you read; the call is refused if the email has changed since.
             */
            rev: number;
        };
        /** @description How fast the email of the installation is released. */
        ResumeBody: {
            /**
             * Format: int32
             * @description The most handoffs per second, 1 to 10,000. Without it everything is released at once.
             */
            rate_per_s?: number | null;
        };
        /** @description How long data is kept. */
        RetentionBody: {
            /** @description Entries of the audit log, such as `365d`; null means for ever. */
            audit?: string | null;
            /** @description Bodies of emails, counted from the final state, such as `7d`; null means 30 days. */
            bodies?: string | null;
            /** @description Events, with the webhook notices about them, such as `90d`; null means for ever. */
            events?: string | null;
            /** @description Received mail, with its text and attachments, such as `90d`; null means for ever. */
            raw?: string | null;
        };
        /** @description How long data is kept. Absent fields keep their value. */
        RetentionPatchBody: {
            /** @description Entries of the audit log: a duration such as `365d`, from 1 to 3,650 days; null means for ever. */
            audit?: string | null;
            /** @description Bodies of emails, counted from the final state: a duration from 1 hour to 30 days; null means 30 days. */
            bodies?: string | null;
            /** @description Events, with the webhook notices about them: a duration from 1 to 3,650 days; null means for ever. */
            events?: string | null;
            /** @description Received mail, with its text and attachments: a duration from 1 hour to 3,650 days; null means for ever. */
            raw?: string | null;
        };
        /** @description Rotation of an endpoint's secret. */
        RotateEndpointBody: {
            /** @description How long requests are also signed with the previous secrets; `24h` by default, at most `30d`. */
            previous_secret_ttl?: string | null;
            /** @description New signing secret: `whsec_…`. Generated when absent. */
            secret?: string | null;
        };
        /**
         * @description New credentials of a source.
         *
         *     Give a new secret in the form of the source's kind, or new settings for fetching mail. Absent fields keep their
         *     value.
         */
        RotateSourceBody: {
            allow_sha1?: boolean | null;
            /** @description New API key of the provider. */
            api_key?: string | null;
            auth_header?: components["schemas"]["NamedSecretBody"] | null;
            auth_query?: components["schemas"]["NamedSecretBody"] | null;
            /** @description New base URL of the provider's API; needs `api_key` as well. */
            base_url?: string | null;
            basic_auth?: components["schemas"]["BasicAuthBody"] | null;
            bearer_token?: string | null;
            /** @description Whether the previous secret stays valid until the next rotation; true by default. */
            keep_previous?: boolean | null;
            /** @description How often to poll the provider for lost mail. */
            poll_interval?: string | null;
            secret?: string | null;
            sns_topics?: string[] | null;
        };
        /** @description What to do with mail that matches. */
        RuleActionBody: {
            /**
             * @description `block folder label skip_agent mark_read` for inbound mail; `block approve approve_new_recipients` for outbound
             *     mail.
             * @enum {string}
             */
            type: "block" | "folder" | "label" | "skip_agent" | "mark_read" | "approve" | "approve_new_recipients";
            /** @description Name of the folder or label. */
            value?: string | null;
        };
        /** @description A rule. */
        RuleBody: {
            actions: components["schemas"]["RuleActionBody"][];
            /** Format: date-time */
            created_at: string;
            /** @enum {string} */
            direction: "inbound" | "outbound";
            enabled: boolean;
            id: string;
            match: components["schemas"]["RuleMatchBody"];
            /**
             * @description `enforce`, or `observe`: what it would do is recorded, and nothing is done.
             * @enum {string}
             */
            mode: "enforce" | "observe";
            name: string;
            /** Format: int32 */
            priority: number;
            /** Format: int32 */
            rev: number;
        };
        /** @description A rule that matched the message. */
        RuleHitBody: {
            /** @description Actions of the rule, such as `folder` and `label`. */
            actions: ("block" | "folder" | "label" | "skip_agent" | "mark_read" | "approve" | "approve_new_recipients")[];
            id: string;
            /** @description Name of the rule at that time. */
            name: string;
        };
        /** @description When a rule matches. */
        RuleMatchBody: {
            conditions: components["schemas"]["ConditionBody"][];
            /**
             * @description How conditions are combined: `all` (default) or `any`.
             * @enum {string|null}
             */
            operator?: "all" | "any" | null;
            /**
             * @description `true`: match only inbound mail with an authenticated sender. Mail that fails authentication never matches a
             *     condition on `from`, unless the rule has the action `block`.
             */
            require_auth?: boolean | null;
        };
        /** @description A page of rules, newest first. Rules are evaluated in the order of their priority. */
        RulePage: {
            data: components["schemas"]["RuleBody"][];
            next_cursor?: string | null;
        };
        /** @description Fields of a rule to change. Absent fields keep their value. */
        RulePatchBody: {
            actions?: components["schemas"]["RuleActionBody"][] | null;
            enabled?: boolean | null;
            match?: components["schemas"]["RuleMatchBody"] | null;
            /**
             * @description `enforce` or `observe`.
             * @enum {string|null}
             */
            mode?: "enforce" | "observe" | null;
            /** Format: int32 */
            priority?: number | null;
            /**
             * Format: int32
             * @description The `rev` that you read; the call is refused if the object has changed since.
             */
            rev: number;
        };
        /** @description A rule, with its name at the time when it matched. */
        RuleRefBody: {
            id: string;
            name: string;
        };
        /** @description A string, a number up to 2^53-1 or a boolean. */
        Scalar: string | number | boolean;
        /** @description An email or message that matches. */
        SearchHitBody: {
            /**
             * Format: date-time
             * @description When the email was accepted or the message received.
             */
            at: string;
            /** @description Its id. */
            id: string;
            /**
             * @description `email` or `message`.
             * @enum {string}
             */
            kind: "email" | "message";
            /**
             * @description Plain text around the first hit, up to 160 characters and an ellipsis on both sides. Hits are not marked. Of a
             *     message it was written by its sender: treat it as untrusted. One-time codes are masked.
             */
            snippet: string;
        };
        /** @description A page of results. */
        SearchPageBody: {
            data: components["schemas"]["SearchHitBody"][];
            /**
             * @description Pass it as `cursor` to get the next page; null at the end. A page with fewer results than its limit may still have
             *     a next one.
             */
            next_cursor?: string | null;
        };
        /** @description An email to send once. */
        SendBody: {
            attachments?: components["schemas"]["AttachmentBody"][] | null;
            bcc?: components["schemas"]["Addresses"];
            cc?: components["schemas"]["Addresses"];
            /** @description One-time token of a held email that looks like an earlier one: confirms that it is a different email. */
            distinct_token?: string | null;
            /** @description Sender: `agent@example.com` or `Name <agent@example.com>`. */
            from: string;
            /** @description Custom headers, by name. */
            headers?: {
                [key: string]: string;
            } | null;
            /** @description HTML body. */
            html?: string | null;
            intent?: components["schemas"]["IntentBody"] | null;
            /** @description Your own data: strings, numbers up to 2^53-1 and booleans, by name. */
            metadata?: {
                [key: string]: components["schemas"]["Scalar"];
            } | null;
            /**
             * @description What to do when the key was used for a different email.
             *
             *     `reject` answers 422; `first_wins` answers with the first email. The default is `reject` for header keys and
             *     `first_wins` for intents.
             * @enum {string|null}
             */
            on_mismatch?: "reject" | "first_wins" | null;
            /**
             * @description What to do when the outcome is unknown.
             *
             *     `hold` (default) waits for evidence or a person; `resend` sends once more, so the recipient may get it twice.
             * @enum {string|null}
             */
            on_unknown?: "hold" | "resend" | null;
            reply_to?: components["schemas"]["Addresses"];
            /** @description When to send: RFC 3339 time with an offset, or a relative time such as `in 5 minutes`. At once when absent. */
            scheduled_at?: string | null;
            /** @description Subject. */
            subject?: string | null;
            tags?: components["schemas"]["TagBody"][] | null;
            template?: components["schemas"]["TemplateUseBody"] | null;
            /** @description Plain text body. Required unless `html` or `template` is set. */
            text?: string | null;
            to: components["schemas"]["Addresses"];
            /** @description Name of the transport to use; chosen by the server when absent. */
            transport?: string | null;
            ttl?: components["schemas"]["TtlBody"] | null;
        };
        /** @description The response to a send. A retry gets the same email with its current state. */
        SendReceiptBody: {
            /**
             * Format: date-time
             * @description When the email was accepted.
             */
            created_at: string;
            dedupe: components["schemas"]["DedupeBody"];
            /**
             * @description One-time token of a held email that looks like an earlier one.
             *
             *     If it is a different email, send the same call again with this token: the held email is released.
             */
            distinct_token?: string | null;
            /**
             * Format: int64
             * @description The fence of that thread's latest lease.
             */
            fence?: number | null;
            /** @description The most important guard in `holds`, or the one that held or flagged the email, or found a duplicate. */
            guard?: string | null;
            /** @description The guards that hold the email. It leaves when none is left. */
            holds?: string[];
            /** @description Id of the email. */
            id: string;
            /** @description The Message-ID header, with angle brackets. */
            message_id: string;
            /** @description What this response means and what to do next, in a sentence. */
            next: string;
            /** @description With `Prefer: policy-trace`: what each check decided about the email when it was accepted, in order. */
            policy?: components["schemas"]["PolicyStepBody"][] | null;
            /** @description Id of the next version, if the email was resent. */
            resent_as?: string | null;
            /**
             * Format: int32
             * @description Revision; grows with every change.
             */
            rev: number;
            /**
             * @description `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`
             * @enum {string}
             */
            state: "scheduled" | "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "unknown" | "abandoned" | "held" | "cancelled";
            /** @description The thread of a reply. */
            thread_id?: string | null;
            tightest_budget?: components["schemas"]["BudgetRoomBody"] | null;
        };
        /** @description An attachment, without its bytes. `GET /v1/emails/{id}/attachments/{n}` returns the bytes; the first is number 0. */
        SentAttachmentBody: {
            /** @description Content-ID, if the HTML refers to the attachment. */
            content_id?: string | null;
            /** @description Declared content type. */
            content_type?: string | null;
            /** @description File name as sent. */
            filename?: string | null;
            /** @description Size in bytes. */
            size: number;
        };
        /** @description The session of the person who signed in. */
        SessionBody: {
            /** Format: date-time */
            created_at: string;
            /** @description Send it in the header `Mailonce-Csrf` of every request that changes something. */
            csrf_token: string;
            /**
             * Format: date-time
             * @description When the session ends at the latest.
             */
            expires_at?: string | null;
            /** @description Other teams, to which `PATCH /v1/session` changes. */
            other_teams: components["schemas"]["TeamRefBody"][];
            person: components["schemas"]["PersonBody"];
            /** @description What the person may do, as scopes of API keys. */
            scopes: ("send" | "read" | "reply" | "secrets" | "approve" | "admin" | "operator")[];
            team: components["schemas"]["TeamRefBody"];
        };
        /** @description A change of the session. */
        SessionPatchBody: {
            /** @description Id of the team to act in. */
            team: string;
        };
        /** @description A team's settings. */
        SettingsBody: {
            approval_emails?: components["schemas"]["ApprovalEmailsBody"] | null;
            /** @description Whether every entry of the audit log is also an event, `audit.recorded`. */
            audit_events: boolean;
            compat: components["schemas"]["CompatBody"];
            content_guard: components["schemas"]["ContentGuardBody"];
            escalation_email?: components["schemas"]["NotifySettingsBody"] | null;
            /** @description How long a held email waits for a decision before it is rejected, such as `24h`; null means for ever. */
            held_expires_after?: string | null;
            /**
             * @description Policy for risky replies: `allow`, `flag` or `refuse`.
             *
             *     A reply is risky when it would go to another organization than the sender's, or when the message failed
             *     authentication.
             * @enum {string}
             */
            reply_to: "allow" | "flag" | "refuse";
            retention: components["schemas"]["RetentionBody"];
            team: components["schemas"]["TeamRefBody"];
            /** @description The time zone in which the days and months of budgets begin, by its IANA name, such as `Europe/Berlin`. */
            time_zone: string;
            unsubscribe: components["schemas"]["UnsubscribeSettingsBody"];
        };
        /** @description Settings to change. Absent fields keep their value; `null` removes a value. */
        SettingsPatchBody: {
            approval_emails?: components["schemas"]["ApprovalEmailsBody"] | null;
            /** @description Whether every entry of the audit log is also an event, `audit.recorded`; false by default. */
            audit_events?: boolean | null;
            compat?: components["schemas"]["CompatPatchBody"] | null;
            content_guard?: components["schemas"]["ContentGuardBody"] | null;
            escalation_email?: components["schemas"]["NotifySettingsBody"] | null;
            /** @description A duration such as `24h`, from 1 minute to 30 days; null means for ever. */
            held_expires_after?: string | null;
            /**
             * @description Policy for risky replies: `allow`, `flag` or `refuse`.
             * @enum {string|null}
             */
            reply_to?: "allow" | "flag" | "refuse" | null;
            retention?: components["schemas"]["RetentionPatchBody"] | null;
            /** @description The time zone in which the days and months of budgets begin, by its IANA name, such as `Europe/Berlin`. */
            time_zone?: string | null;
            unsubscribe?: components["schemas"]["UnsubscribeSettingsBody"] | null;
        };
        /** @description A new sign-in link. It is shown only once. */
        SignInLinkBody: {
            /** Format: date-time */
            expires_at: string;
            person: components["schemas"]["PersonBody"];
            /** @description The link. It works once. */
            url: string;
        };
        /** @description The earlier email that a held email looks like. */
        SimilarEmailBody: {
            /** @description Line diff of subject and text: `- ` is only in the earlier email, `+ ` only in the held one. */
            diff: string[];
            email: components["schemas"]["EmailBody"];
        };
        /** @description What would happen to a send. */
        SimulationBody: {
            /** @description For `replay`: the email that the idempotency key belongs to. */
            email?: string | null;
            /** @description What each check decided, in order. For `replay`: what was decided about the first email. */
            policy: components["schemas"]["PolicyStepBody"][];
            problem?: components["schemas"]["ProblemBody"] | null;
            /**
             * @description `accept replay hold refuse`
             * @enum {string}
             */
            would: "accept" | "replay" | "hold" | "refuse";
        };
        /** @description A source, without its secrets. */
        SourceBody: {
            /** @description What the source may deliver: `events`, `inbound` or both. */
            accepts: ("events" | "inbound")[];
            /** @description Base URL of the provider's API, if it differs from the default. */
            base_url?: string | null;
            /** Format: date-time */
            created_at: string;
            /** @description Whether the source has an API key to fetch mail that the webhook only announces. */
            has_api_key: boolean;
            has_secret: boolean;
            /** @description Path of the webhook URL on this server, for the provider to post to. */
            hook_path: string;
            id: string;
            /** @enum {string} */
            kind: "postmark" | "mailgun" | "sendgrid" | "ses" | "resend" | "usesend" | "brevo" | "nylas" | "standard";
            /** @description Error of the polls since then. */
            last_error?: string | null;
            /**
             * Format: date-time
             * @description When a poll last read the provider's list to the end.
             */
            last_polled_at?: string | null;
            name: string;
            /** @description How often the provider is polled for lost mail; null when it is not. */
            poll_interval?: string | null;
            /** Format: int32 */
            rev: number;
            /** Format: date-time */
            rotated_at?: string | null;
            /** @description Number of valid secrets, or of SNS topics. */
            secret_count: number;
            transport?: string | null;
        };
        /** @description A page of sources, newest first. */
        SourcePage: {
            data: components["schemas"]["SourceBody"][];
            next_cursor?: string | null;
        };
        /** @description Statistics of a team's emails. An email counts at the time when it was accepted. */
        StatsBody: components["schemas"]["StatsCountsBody"] & {
            /**
             * Format: int64
             * @description Length of a bucket in seconds.
             */
            bucket_s: number;
            /** @description The same numbers for each part of the span, oldest first. */
            buckets: components["schemas"]["StatsBucketBody"][];
            /** @description Open escalations by reason: what waits for a person now. At most 1,000 are counted. */
            needs_you: {
                [key: string]: number;
            };
            /** Format: date-time */
            since: string;
            /** Format: date-time */
            until: string;
        };
        /** @description A part of the span. */
        StatsBucketBody: components["schemas"]["StatsCountsBody"] & {
            /**
             * Format: date-time
             * @description Its beginning.
             */
            at: string;
        };
        /** @description Emails that were accepted in a span of time. */
        StatsCountsBody: {
            /**
             * Format: int64
             * @description Number of accepted emails.
             */
            accepted: number;
            /**
             * Format: int64
             * @description Number of repeated calls: they got one of these emails back, or were refused because they asked for a different email.
             */
            duplicates: number;
            /** @description Number of handoffs by their current state. An email to several recipients may have several. */
            states: {
                [key: string]: number;
            };
        };
        /** @description A stop. */
        StopBody: {
            /** @description Name of the API key that created it, or of the command. */
            by: string;
            /** Format: date-time */
            created_at: string;
            id: string;
            /** @enum {string} */
            mode: "wait" | "refuse";
            reason?: string | null;
            scope: components["schemas"]["StopScopeBody"];
            /**
             * @description `in_force`, or `releasing` while its email returns to the queue after it ended.
             * @enum {string}
             */
            state: "in_force" | "releasing";
            /**
             * Format: int64
             * @description In lists: how many handoffs are due and wait for it, up to 100,000. Keys without the scope `operator` see only
             *     those of their team counted.
             */
            waiting?: number | null;
        };
        /** @description The stops that affect the team, oldest first. */
        StopList: {
            data: components["schemas"]["StopBody"][];
        };
        /** @description The emails that a stop covers. Set exactly one field. */
        StopScopeBody: {
            /** @description Emails that were sent with this API key, by id. */
            api_key?: string | null;
            /** @description Emails from this inbox, by id or address. A catch-all covers every address of its domain. */
            inbox?: string | null;
            /** @description `true`: every email of every team. Needs the scope `operator`. */
            installation?: boolean | null;
            /** @description `true`: every email of the team. */
            team?: boolean | null;
            /** @description Every email that this transport hands on, by name. Needs the scope `operator`. */
            transport?: string | null;
        };
        /** @description A duplicate call that was answered with an earlier email. */
        SuppressedCallBody: {
            /**
             * Format: date-time
             * @description When the duplicate call came.
             */
            at: string;
            call?: components["schemas"]["CallTraceBody"] | null;
            /** @description Id of the API key of the call. */
            caller?: string | null;
            /**
             * @description How the call came.
             * @enum {string}
             */
            channel: "http" | "batch" | "cli" | "resend" | "usesend" | "mcp" | "agentmail" | "outbox";
            /** @description `key_replay payload_differs mismatch already_answered` */
            reason: string;
        };
        /** @description A suppressed address. Sends to it are refused. */
        SuppressionBody: {
            address: string;
            /** Format: date-time */
            created_at: string;
            /** @description The provider's own text. */
            detail?: string | null;
            /** @description Id of the email that bounced or drew the complaint. */
            email?: string | null;
            id: string;
            /** @description `bounced`, `complained`, `unsubscribed`, `manual`, or a text entered by a person. */
            reason: string;
            /** Format: int32 */
            rev: number;
            /**
             * @description `all`: every send is refused. `unsubscribable`: sends with one of the team's unsubscribe tags are refused.
             * @enum {string}
             */
            scope: "all" | "unsubscribable";
            /** @description Id of the source that reported it. */
            source?: string | null;
        };
        /** @description A page of suppressions, newest first. */
        SuppressionPage: {
            data: components["schemas"]["SuppressionBody"][];
            next_cursor?: string | null;
        };
        /** @description A tag: a name, or a name with a value. */
        TagBody: string | components["schemas"]["TagPair"];
        /** @description A tag with a value. */
        TagPair: {
            /** @description Name of the tag. */
            name: string;
            /** @description Value of the tag. */
            value?: string | null;
        };
        /** @description A team. */
        TeamBody: {
            /** Format: date-time */
            created_at: string;
            id: string;
            name: string;
            /** @description Whether sends must have an idempotency key or an intent. */
            require_keys: boolean;
        };
        /** @description All teams. */
        TeamPage: {
            data: components["schemas"]["TeamBody"][];
            /** @description Always null: the list has one page. */
            next_cursor?: string | null;
        };
        /** @description Settings of a team to change. */
        TeamPatchBody: {
            /** @description Whether sends must have an idempotency key or an intent. */
            require_keys: boolean;
        };
        /** @description The name of a team. */
        TeamRefBody: {
            id: string;
            name: string;
        };
        /** @description A version of a template. */
        TemplateBody: {
            /** Format: date-time */
            created_at: string;
            html?: string | null;
            id: string;
            name: string;
            subject: string;
            text?: string | null;
            /**
             * Format: date-time
             * @description When this version was created.
             */
            updated_at: string;
            /** @description The variables that it uses or declares. Those without a default are required. */
            variables: {
                [key: string]: components["schemas"]["TemplateVariableBody"];
            };
            /**
             * Format: int32
             * @description From 1. Each change adds a version.
             */
            version: number;
        };
        /** @description What a validation found. */
        TemplateCheckBody: {
            errors: components["schemas"]["TemplateErrorBody"][];
            /** @description Variables without a default that the call gives no value for. A template may do without them in an `if`. */
            missing: string[];
            /** @description Variables of the call that the template does not use. */
            unused: string[];
            /** @description Whether the template can be rendered; without `variables` in the call, whether it compiles. */
            valid: boolean;
            /** @description The variables that it uses or declares. */
            variables: {
                [key: string]: components["schemas"]["TemplateVariableBody"];
            };
        };
        /** @description A template with the list of its versions. */
        TemplateDetailBody: components["schemas"]["TemplateBody"] & {
            /** @description All versions, newest first. */
            versions: components["schemas"]["TemplateVersionBody"][];
        };
        /** @description An error in a template. */
        TemplateErrorBody: {
            line?: number | null;
            message: string;
            /**
             * @description `subject`, `text` or `html`.
             * @enum {string}
             */
            part: "subject" | "text" | "html";
            variable?: string | null;
        };
        /** @description A page of templates in their newest version, newest first. */
        TemplatePage: {
            data: components["schemas"]["TemplateBody"][];
            next_cursor?: string | null;
        };
        /** @description Fields of a template to change. Absent fields keep their value; an empty `text` or `html` is removed. */
        TemplatePatchBody: {
            html?: string | null;
            subject?: string | null;
            text?: string | null;
            /** @description Replaces all default values. */
            variables?: {
                [key: string]: components["schemas"]["TemplateVariableBody"];
            } | null;
            /**
             * Format: int32
             * @description The version that you read; the call is refused if there is a newer one.
             */
            version?: number | null;
        };
        /** @description What an email with the template says. */
        TemplatePreviewBody: {
            html?: string | null;
            name: string;
            subject: string;
            text?: string | null;
            /** Format: int32 */
            version: number;
        };
        /** @description A template and its version. */
        TemplateRefBody: {
            name: string;
            /** Format: int32 */
            version: number;
        };
        /** @description The template that writes an email. */
        TemplateUseBody: {
            /** @description Name of the template. */
            name: string;
            /** @description Values, by variable. */
            variables?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: int32
             * @description The version; the newest by default.
             */
            version?: number | null;
        };
        /** @description A variable of a template. */
        TemplateVariableBody: {
            /** @description The value when a send gives none. A variable without a default is required. */
            default?: unknown;
        };
        /** @description The number of a version. */
        TemplateVersionBody: {
            /** Format: date-time */
            created_at: string;
            /** Format: int32 */
            version: number;
        };
        /** @description A thread: messages and emails that reply to each other. */
        ThreadBody: {
            /**
             * Format: date-time
             * @description When the thread began.
             */
            created_at: string;
            /**
             * Format: int32
             * @description Number of sent emails.
             */
            email_count: number;
            /** @description The latest 100 messages and 100 emails, oldest first; only when a single thread is read. */
            entries?: components["schemas"]["ThreadEntryBody"][] | null;
            /**
             * Format: int64
             * @description Fence of the latest lease; grows with each lease.
             */
            fence: number;
            /**
             * Format: date-time
             * @description When the thread was marked as handled; null if it is not. A new message clears the mark.
             */
            handled_at?: string | null;
            /** @description Id of the thread. */
            id: string;
            /** @description Id of the inbox. */
            inbox_id: string;
            /** @description Labels of the thread. */
            labels: string[];
            /**
             * Format: date-time
             * @description When the last message or email was added.
             */
            last_activity_at: string;
            lease?: components["schemas"]["LeaseHolderBody"] | null;
            /**
             * Format: int32
             * @description Number of received messages.
             */
            message_count: number;
            replies?: components["schemas"]["ReplyCountsBody"] | null;
            /**
             * Format: int32
             * @description Revision; grows with every change.
             */
            rev: number;
            /** @description Subject of the first message. */
            subject: string;
        };
        /** @description An entry of a thread: a received message or a sent email. */
        ThreadEntryBody: {
            /** @description The message. */
            message: components["schemas"]["MessageBody"];
            /** @enum {string} */
            type: "message";
        } | {
            /** @description The email. */
            email: components["schemas"]["EmailBody"];
            /** @enum {string} */
            type: "email";
        };
        /** @description A page of threads, latest activity first. */
        ThreadPage: {
            data: components["schemas"]["ThreadBody"][];
            next_cursor?: string | null;
        };
        /** @description Fields of a thread to change. Absent fields keep their value. */
        ThreadPatchBody: {
            /** @description Whether the thread is handled: nothing is left to do. */
            handled?: boolean | null;
            /** @description Replaces all labels. */
            labels?: string[] | null;
        };
        /** @description An entry in the timeline of an email. */
        TimelineEntryBody: {
            /**
             * Format: date-time
             * @description When it happened.
             */
            at: string;
            /** @description What happened, in a sentence. */
            description: string;
        };
        /** @description A transport: an SMTP relay or provider that emails are sent through. */
        TransportBody: {
            /** @description The provider account. An unknown outcome is only retried with the same account. */
            account: string;
            /**
             * @description Circuit breaker: `closed` (working), `open` (paused after failures) or `half_open` (one trial attempt).
             * @enum {string}
             */
            breaker: "closed" | "open" | "half_open";
            /** @description Why the circuit breaker is open. */
            breaker_reason?: string | null;
            /** @description Number of running attempts. */
            in_flight: number;
            /**
             * @description `sandbox smtp resend postmark mailgun sendgrid ses usesend brevo http`
             * @enum {string}
             */
            kind: "sandbox" | "smtp" | "resend" | "postmark" | "mailgun" | "sendgrid" | "ses" | "usesend" | "brevo" | "http";
            name: string;
            /**
             * @description How an unknown outcome is recovered: `key` (idempotent retry), `look_up` (search at the provider) or `none`.
             * @enum {string}
             */
            unknown_recovery: "key" | "look_up" | "none";
        };
        /** @description All transports. */
        TransportPage: {
            data: components["schemas"]["TransportBody"][];
            /** @description Always null: the list has one page. */
            next_cursor?: string | null;
            /** @description Missing transports that handoffs wait for. `POST /v1/transports/{name}/reroute` moves the handoffs. */
            orphaned: components["schemas"]["OrphanedTransportBody"][];
        };
        /** @description The email that tests a transport. */
        TransportTestBody: {
            /** @description Sender, an address that your API key may send from. */
            from: string;
            /** @description Recipient. */
            to: string;
        };
        /** @description How long an idempotency key is remembered. */
        TtlBody: string | components["schemas"]["TtlClass"];
        /** @description Key lifetime for a recurring email: twice its interval. */
        TtlClass: {
            /**
             * @description Always `scheduled`.
             * @enum {string}
             */
            class: "scheduled";
            /** @description How often the email recurs, such as `7d`. */
            interval: string;
        };
        /** @description Which email gets an unsubscribe link (RFC 8058). */
        UnsubscribeSettingsBody: {
            /** @description Names of tags, or `name=value`. Email to one recipient with one of these tags gets the link. */
            tags: string[];
        };
        /** @description What to check. Absent wording is that of the template. */
        ValidateBody: {
            html?: string | null;
            subject?: string | null;
            text?: string | null;
            /** @description Values, by variable. Without them, only the syntax is checked. */
            variables?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: int32
             * @description The version; the newest by default.
             */
            version?: number | null;
        };
        /** @description The message that was waited for. */
        WaitResultBody: {
            /** @description Pass it as `after` to wait for the next message. */
            cursor: string;
            message: components["schemas"]["MessageBody"];
        };
        /** @description A watch: one run of an agent that waits for mail. */
        WatchBody: {
            /**
             * Format: int32
             * @description How often the agent may ask for the mail again.
             */
            budget: number;
            /** @description Only messages after this cursor count. */
            cursor: string;
            /**
             * Format: date-time
             * @description When the watch ends.
             */
            deadline: string;
            /** @description Id of the watch. */
            id: string;
            /** @description Id of the inbox. */
            inbox_id: string;
            /** @description Whether only messages with an authenticated sender count. */
            require_auth: boolean;
            /**
             * Format: int32
             * @description How often the agent asked for the mail again.
             */
            resends_used: number;
            /**
             * Format: int32
             * @description Revision; grows with every change.
             */
            rev: number;
            /**
             * Format: date-time
             * @description When the watch started.
             */
            started_at: string;
        };
        /** @description A claim that you have. */
        WonClaimBody: {
            /** @description Idempotency key for the system that performs the side effect: the same for every holder of this claim. */
            downstream_key: string;
            /**
             * Format: int64
             * @description Grows with each holder of this claim.
             */
            fence: number;
            id: string;
            key: string;
            /** Format: date-time */
            lease_expires_at?: string | null;
            /** @description Whether an earlier holder may have performed the side effect. Look it up before you perform it. */
            may_repeat: boolean;
            /** @description What the application wrote with `mailonce_outbox.claim`, any JSON. Left out for other claims. */
            payload?: unknown;
            /** @description The period, if the intent has one. */
            period?: string | null;
            /** @description With `Prefer: policy-trace`: what each check decided. */
            policy?: components["schemas"]["PolicyStepBody"][] | null;
            /** Format: int32 */
            rev: number;
            /**
             * @description `begun`, or `claimed` with `begin: "later"`.
             * @enum {string}
             */
            state: "begun" | "claimed";
            /** @description Proves that you have the claim. Keep it until the end. */
            token: string;
        };
        /** @description A message to work on. */
        WorkItemBody: {
            lease: components["schemas"]["LeaseBody"];
            message: components["schemas"]["MessageBody"];
            /** @description Ids of newer messages from people in the thread. Read them, and list them in `seen` when you reply. */
            newer_messages: string[];
        };
        /** @description Messages to work on, each with a lease. */
        WorkItemPage: {
            data: components["schemas"]["WorkItemBody"][];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
