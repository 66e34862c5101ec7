//! The page to which a sign-in leads: the parameter `next` of the sign-in pages, and the cookie that keeps it meanwhile.
//!
//! Only pages of this server that somebody opens from elsewhere are followed, in exactly the form in which this server
//! writes their addresses. So a sign-in can never lead to another site.

use mailonce_core::id::EmailId;
use uuid::Uuid;

/// The longest encoded address. It must fit into a cookie.
const MAX_ENCODED_BYTES: usize = 3_500;
/// The length of an id with hyphens, the only form in which the dashboard has ids.
const ID_BYTES: usize = 36;

/// The page that a query names, if a sign-in may lead there.
pub(crate) fn next_page(query: &str) -> Option<String> {
    let (_, page) = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "next")?;
    is_next_page(&page).then(|| page.into_owned())
}

/// The address of a page of the sign-in, which leads to this page if it may.
pub(crate) fn with_next(sign_in: &str, page: Option<&str>) -> String {
    match page.filter(|page| is_next_page(page)) {
        Some(page) => format!("{sign_in}?next={}", encode(page)),
        None => sign_in.to_owned(),
    }
}

/// A page as the value of a parameter or of a cookie.
pub(crate) fn encode(page: &str) -> String {
    url::form_urlencoded::byte_serialize(page.as_bytes()).collect()
}

/// Whether a sign-in may lead to a page: an email, a question, or the consent page of OAuth.
fn is_next_page(page: &str) -> bool {
    let is_email = page.strip_prefix("/emails/").is_some_and(|id| id.parse::<EmailId>().is_ok());
    let is_id = |id: &str| id.len() == ID_BYTES && Uuid::try_parse(id).is_ok();
    let is_question = page.strip_prefix("/needs-you/").is_some_and(is_id);
    let is_consent = page.strip_prefix("/oauth/authorize?").is_some_and(|query| {
        !query.is_empty() && query.bytes().all(is_query_byte) && encode(page).len() <= MAX_ENCODED_BYTES
    });
    is_email || is_question || is_consent
}

/// Whether a query has this byte as it is (RFC 3986, section 3.4). Neither a fragment nor another header can begin with one.
fn is_query_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:@/?".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn a_sign_in_leads_to_the_page_that_was_asked_for() {
        let consent = "/oauth/authorize?response_type=code&redirect_uri=https%3A%2F%2Frobot.test%2Fcb&state=s%261";
        for page in [format!("/emails/{ID}"), format!("/needs-you/{ID}"), consent.to_owned()] {
            let sign_in = with_next("/sign-in", Some(&page));
            let (path, query) = sign_in.split_once('?').unwrap();
            assert_eq!((path, next_page(query)), ("/sign-in", Some(page)));
        }
        assert_eq!(next_page(&format!("next=/emails/{ID}")), Some(format!("/emails/{ID}")));
    }

    #[test]
    fn a_sign_in_leads_nowhere_else() {
        for page in [
            "",
            "/",
            "//evil.example",
            "https://evil.example",
            "\\\\evil.example",
            "/emails/",
            "/emails//evil.example",
            "/emails/%0d%0aSet-Cookie:x=1",
            "/emails/01890a5d-ac96-774b-bcce-b302099a8057/../../sign-in",
            "/needs-you/",
            "/needs-you//evil.example",
            "/needs-you/01890a5d-ac96-774b-bcce-b302099a8057/../..//evil.example",
            "/needs-you/01890a5d-ac96-774b-bcce-b302099a8057?x=1",
            "/needs-you/{01890a5d-ac96-774b-bcce-b302099a8057}",
            "/needs-you/01890a5dac96774bbcceb302099a8057",
            "/needs-you/01890a5d-ac96-774b-bcce-b302099a8057\r\nSet-Cookie:x=1",
            "/oauth/authorize",
            "/oauth/authorize?",
            "/oauth/authorize/../..//evil.example?x=1",
            "/oauth/authorize?x=1\r\nSet-Cookie: x=1",
            "/oauth/authorize?x=1#//evil.example",
            "/oauth/authorize?x=ä",
            "//evil.example/oauth/authorize?x=1",
            "https://evil.example/oauth/authorize?x=1",
            "/sign-in",
            "/a/x",
        ] {
            assert_eq!(next_page(&format!("next={}", encode(page))), None, "{page}");
            assert_eq!(with_next("/sign-in", Some(page)), "/sign-in", "{page}");
        }
        let long = format!("/oauth/authorize?state={}", "x".repeat(MAX_ENCODED_BYTES));
        assert_eq!(next_page(&format!("next={long}")), None);
        assert_eq!(next_page(&format!("to=/emails/{ID}")), None);
    }
}
