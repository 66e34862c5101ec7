//! Whether a signature holds (RFC 6376, 8301, 8463).

use mail_auth::{
    AuthenticatedMessage, DkimResult, Error, MessageAuthenticator,
    common::crypto::Algorithm,
    dkim::{DkimError, Signature},
};
use mailonce_core::inbound::sender_auth::AuthResult;
use tokio::time::Instant;

use super::{DomainCheck, dmarc::a_label, with_deadline};

/// Signatures of one mail that are looked at.
pub(super) const MAX_SIGNATURES: usize = 10;
/// Header fields that one signature may name.
const MAX_SIGNED_HEADERS: usize = 200;

/// What each signature is worth. Takes the signatures out of the message.
pub(super) async fn check_signatures(
    dns: &MessageAuthenticator,
    message: Option<&mut AuthenticatedMessage<'_>>,
    until: Instant,
) -> Vec<DomainCheck> {
    let Some(message) = message else { return Vec::new() };
    let mut checked: Vec<_> = message.errors.iter().filter_map(|header| unparsed_signature(&header.header)).collect();
    checked.truncate(MAX_SIGNATURES);
    let left = MAX_SIGNATURES - checked.len();
    for mut header in std::mem::take(&mut message.dkim_headers).into_iter().take(left) {
        let domain = a_label(&header.header.d).unwrap_or_default();
        if is_unacceptable(&header.header) {
            checked.push(DomainCheck { domain, result: AuthResult::PermError });
            continue;
        }
        // Nobody is written a report and no other domain may vouch: both would be more to ask.
        header.header.r = false;
        header.header.atps = None;
        message.dkim_headers = vec![header];
        let asked = async { dns.verify_dkim(&*message).await.first().map(|output| to_auth_result(output.result())) };
        let result = with_deadline(until, asked, Some(AuthResult::TempError)).await;
        checked.push(DomainCheck { domain, result: result.unwrap_or(AuthResult::None) });
    }
    checked
}

/// The best of what the signatures say.
pub(super) fn best_result(signed: &[DomainCheck]) -> AuthResult {
    use AuthResult::{Fail, Neutral, Pass, PermError, TempError};
    let said = |wanted: &AuthResult| signed.iter().any(|checked| checked.result == *wanted);
    [Pass, TempError, Fail, Neutral, PermError].into_iter().find(said).unwrap_or(AuthResult::None)
}

/// A signature that proves nothing however well it verifies: by SHA-1 (RFC 8301 §3.1), not over the sender's own line
/// (RFC 6376 §5.4), or over more than anybody signs.
fn is_unacceptable(signature: &Signature) -> bool {
    signature.a == Algorithm::RsaSha1
        || signature.h.len() > MAX_SIGNED_HEADERS
        || !signature.h.iter().any(|name| name.eq_ignore_ascii_case("from"))
}

/// A header that is no signature, or one that is refused before anybody is asked.
fn unparsed_signature(error: &Error) -> Option<DomainCheck> {
    let result = match error {
        // Over a part of the body: what follows could be anybody's.
        Error::Dkim(DkimError::SignatureLength) => AuthResult::Neutral,
        Error::Dkim2(_) => return None,
        _ => AuthResult::PermError,
    };
    Some(DomainCheck { domain: String::new(), result })
}

fn to_auth_result(result: &DkimResult) -> AuthResult {
    match result {
        DkimResult::Pass => AuthResult::Pass,
        DkimResult::None => AuthResult::None,
        DkimResult::TempError(_) => AuthResult::TempError,
        DkimResult::Fail(_)
        | DkimResult::Neutral(Error::Dkim(DkimError::FailedBodyHashMatch | DkimError::SignatureExpired)) => {
            AuthResult::Fail
        }
        DkimResult::PermError(_) | DkimResult::Neutral(_) => AuthResult::PermError,
    }
}
