//! DKIM: verifies the signatures of a mail (RFC 6376, 8301, 8463).

use mail_auth::{
    AuthenticatedMessage, DkimResult, Error, MessageAuthenticator,
    common::crypto::Algorithm,
    dkim::{DkimError, Signature},
};
use mailonce_core::inbound::sender_auth::AuthResult;
use tokio::time::Instant;

use super::{DomainCheck, dmarc::a_label, with_deadline};

/// How many signatures of one mail are verified.
pub(super) const MAX_SIGNATURES: usize = 10;
/// How many header fields one signature may cover.
const MAX_SIGNED_HEADERS: usize = 200;

/// The result of each signature. Removes the signatures from the message.
pub(super) async fn check_signatures(
    dns: &MessageAuthenticator,
    message: Option<&mut AuthenticatedMessage<'_>>,
    deadline: Instant,
) -> Vec<DomainCheck> {
    let Some(message) = message else { return Vec::new() };
    let mut checked: Vec<_> = message.errors.iter().filter_map(|header| unparsed_signature(&header.header)).collect();
    checked.truncate(MAX_SIGNATURES);
    let remaining = MAX_SIGNATURES - checked.len();
    for mut header in std::mem::take(&mut message.dkim_headers).into_iter().take(remaining) {
        let domain = a_label(&header.header.d).unwrap_or_default();
        if is_unacceptable(&header.header) {
            checked.push(DomainCheck { domain, result: AuthResult::PermError });
            continue;
        }
        // Failure reports and third-party signatures (ATPS) are disabled: both need further DNS queries.
        header.header.r = false;
        header.header.atps = None;
        message.dkim_headers = vec![header];
        let verify = async { dns.verify_dkim(&*message).await.first().map(|output| to_auth_result(output.result())) };
        let result = with_deadline(deadline, verify, Some(AuthResult::TempError)).await;
        checked.push(DomainCheck { domain, result: result.unwrap_or(AuthResult::None) });
    }
    checked
}

/// The best result among the signatures.
pub(super) fn best_result(signatures: &[DomainCheck]) -> AuthResult {
    use AuthResult::{Fail, Neutral, Pass, PermError, TempError};
    let has_result = |wanted: &AuthResult| signatures.iter().any(|checked| checked.result == *wanted);
    [Pass, TempError, Fail, Neutral, PermError].into_iter().find(has_result).unwrap_or(AuthResult::None)
}

/// True for a signature that is rejected without verification: it uses SHA-1 (RFC 8301 §3.1), does not cover `From`
/// (RFC 6376 §5.4), or covers too many fields.
fn is_unacceptable(signature: &Signature) -> bool {
    signature.a == Algorithm::RsaSha1
        || signature.h.len() > MAX_SIGNED_HEADERS
        || !signature.h.iter().any(|name| name.eq_ignore_ascii_case("from"))
}

/// The result for a DKIM header that could not be parsed, or that the parser rejected.
fn unparsed_signature(error: &Error) -> Option<DomainCheck> {
    let result = match error {
        // The signature covers only part of the body (`l=`), so anything could have been appended.
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
