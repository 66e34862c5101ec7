//! The documentation page of each error code, embedded from `docs/errors/`.

/// Error code and page, in the order of `Code::ALL`.
pub(super) const PAGES: &[(&str, &str)] = &[
    ("invalid_key", include_str!("../../../../docs/errors/invalid_key.md")),
    ("key_required", include_str!("../../../../docs/errors/key_required.md")),
    ("invalid_json", include_str!("../../../../docs/errors/invalid_json.md")),
    ("invalid_type", include_str!("../../../../docs/errors/invalid_type.md")),
    ("unknown_field", include_str!("../../../../docs/errors/unknown_field.md")),
    ("invalid_query", include_str!("../../../../docs/errors/invalid_query.md")),
    ("unknown_version", include_str!("../../../../docs/errors/unknown_version.md")),
    ("unauthorized", include_str!("../../../../docs/errors/unauthorized.md")),
    ("key_expired", include_str!("../../../../docs/errors/key_expired.md")),
    ("session_ended", include_str!("../../../../docs/errors/session_ended.md")),
    ("csrf_failed", include_str!("../../../../docs/errors/csrf_failed.md")),
    ("link_gone", include_str!("../../../../docs/errors/link_gone.md")),
    ("bad_signature", include_str!("../../../../docs/errors/bad_signature.md")),
    ("wrong_scope", include_str!("../../../../docs/errors/wrong_scope.md")),
    ("ip_not_allowed", include_str!("../../../../docs/errors/ip_not_allowed.md")),
    ("sender_not_allowed", include_str!("../../../../docs/errors/sender_not_allowed.md")),
    ("sender_not_verified", include_str!("../../../../docs/errors/sender_not_verified.md")),
    ("foreign_origin", include_str!("../../../../docs/errors/foreign_origin.md")),
    ("not_found", include_str!("../../../../docs/errors/not_found.md")),
    ("method_not_allowed", include_str!("../../../../docs/errors/method_not_allowed.md")),
    ("timeout", include_str!("../../../../docs/errors/timeout.md")),
    ("too_late", include_str!("../../../../docs/errors/too_late.md")),
    ("not_scheduled", include_str!("../../../../docs/errors/not_scheduled.md")),
    ("not_terminal", include_str!("../../../../docs/errors/not_terminal.md")),
    ("use_resolve", include_str!("../../../../docs/errors/use_resolve.md")),
    ("budget_spent", include_str!("../../../../docs/errors/budget_spent.md")),
    ("stopped", include_str!("../../../../docs/errors/stopped.md")),
    ("busy", include_str!("../../../../docs/errors/busy.md")),
    ("unknown", include_str!("../../../../docs/errors/unknown.md")),
    ("claim_ended", include_str!("../../../../docs/errors/claim_ended.md")),
    ("stale_token", include_str!("../../../../docs/errors/stale_token.md")),
    ("wrong_token", include_str!("../../../../docs/errors/wrong_token.md")),
    ("search_disabled", include_str!("../../../../docs/errors/search_disabled.md")),
    ("search_timeout", include_str!("../../../../docs/errors/search_timeout.md")),
    ("stale_rev", include_str!("../../../../docs/errors/stale_rev.md")),
    ("not_unknown", include_str!("../../../../docs/errors/not_unknown.md")),
    ("address_reserved", include_str!("../../../../docs/errors/address_reserved.md")),
    ("reply_to", include_str!("../../../../docs/errors/reply_to.md")),
    ("name_taken", include_str!("../../../../docs/errors/name_taken.md")),
    ("team_exists", include_str!("../../../../docs/errors/team_exists.md")),
    ("already_consumed", include_str!("../../../../docs/errors/already_consumed.md")),
    ("not_consumed", include_str!("../../../../docs/errors/not_consumed.md")),
    ("watch_over", include_str!("../../../../docs/errors/watch_over.md")),
    ("not_dead", include_str!("../../../../docs/errors/not_dead.md")),
    ("already_answered", include_str!("../../../../docs/errors/already_answered.md")),
    ("leased", include_str!("../../../../docs/errors/leased.md")),
    ("newer_message", include_str!("../../../../docs/errors/newer_message.md")),
    ("not_open", include_str!("../../../../docs/errors/not_open.md")),
    ("cursor_reset", include_str!("../../../../docs/errors/cursor_reset.md")),
    ("too_large", include_str!("../../../../docs/errors/too_large.md")),
    ("unsupported_media_type", include_str!("../../../../docs/errors/unsupported_media_type.md")),
    ("misdirected_host", include_str!("../../../../docs/errors/misdirected_host.md")),
    ("invalid_field", include_str!("../../../../docs/errors/invalid_field.md")),
    ("key_mismatch", include_str!("../../../../docs/errors/key_mismatch.md")),
    ("template_error", include_str!("../../../../docs/errors/template_error.md")),
    ("recipient_suppressed", include_str!("../../../../docs/errors/recipient_suppressed.md")),
    ("blocked_by_rule", include_str!("../../../../docs/errors/blocked_by_rule.md")),
    ("self", include_str!("../../../../docs/errors/self.md")),
    ("automatic", include_str!("../../../../docs/errors/automatic.md")),
    ("rate_limited", include_str!("../../../../docs/errors/rate_limited.md")),
    ("quota_exceeded", include_str!("../../../../docs/errors/quota_exceeded.md")),
    ("too_many_failures", include_str!("../../../../docs/errors/too_many_failures.md")),
    ("internal", include_str!("../../../../docs/errors/internal.md")),
    ("unavailable", include_str!("../../../../docs/errors/unavailable.md")),
];

/// The page of an error code.
pub(super) fn page(code: &str) -> Option<&'static str> {
    PAGES.iter().find(|(name, _)| *name == code).map(|(_, page)| *page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::problem::Code;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let codes: BTreeSet<String> = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
        let pages: BTreeSet<String> = PAGES.iter().map(|(name, _)| (*name).to_owned()).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let files: BTreeSet<String> =
            std::fs::read_dir(folder).unwrap().map(name).map(|name| name.trim_end_matches(".md").to_owned()).collect();
        assert_eq!(codes, pages);
        assert_eq!(codes, files);
        for (code, (_, page)) in Code::ALL.iter().zip(PAGES) {
            assert!(page.contains(&code.status().to_string()), "{} does not say its status", code.as_str());
            assert!(page.contains(code.retry().as_str()), "{} does not say its retry class", code.as_str());
        }
    }
}
