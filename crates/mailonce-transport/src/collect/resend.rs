//! Resend: `GET /emails/receiving/{id}` names where the mail lies; `GET /emails/receiving` lists, newest first.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::Uri;
use mailonce_core::{
    inbound::provider_mail::{FetchError, FetchedMail, MailListEntry, MailListPage, ProviderMailRef},
    limits,
    time::Time,
};
use serde_json::{Value, json};

use super::{AccountClient, MAX_JSON_BYTES, check_mail_size};
use crate::http::{
    ProviderRequest,
    base::{BaseUrl, percent_encode},
};

pub(super) const DEFAULT_BASE_URL: &str = "https://api.resend.com";
/// Where mails and files are downloaded from, besides the API's own host.
const DOWNLOAD_HOST_SUFFIX: &str = ".resend.com";
/// Mails of one page.
const PAGE_SIZE: usize = 100;
/// Files of one mail.
const MAX_FILES: usize = 200;

pub(super) async fn fetch(desk: &AccountClient<'_>, notice: &ProviderMailRef) -> Result<FetchedMail, FetchError> {
    let path = format!("/emails/receiving/{}", percent_encode(&notice.id));
    // Pictures stay files of their own, or the text would hold them all.
    let mut mail = desk
        .get_json(ProviderRequest::get(format!("{path}?html_format=cid")).with_bearer(&desk.api_key), MAX_JSON_BYTES)
        .await?;
    if let Some(url) = mail.pointer("/raw/download_url").and_then(Value::as_str) {
        return check_mail_size(download(desk, url, limits::INBOUND_MAIL_BYTES).await?);
    }
    if mail.pointer("/attachments").and_then(Value::as_array).is_some_and(|files| !files.is_empty()) {
        mail["attachments"] = files(desk, &path).await?;
    }
    Ok(FetchedMail::Fields(mail))
}

/// The files of a mail, each with its content.
async fn files(desk: &AccountClient<'_>, path: &str) -> Result<Value, FetchError> {
    let call = ProviderRequest::get(format!("{path}/attachments?limit={PAGE_SIZE}")).with_bearer(&desk.api_key);
    let mut list = desk.get_json(call, MAX_JSON_BYTES).await?;
    let listed = list.get_mut("data").map(Value::take).unwrap_or_default();
    let Value::Array(mut files) = listed else { return Err(desk.retry_later("the list of files has no data")) };
    if files.len() > MAX_FILES || list.get("has_more").and_then(Value::as_bool) == Some(true) {
        return Err(FetchError::Permanent("the mail has more files than are fetched".into()));
    }
    let mut left = limits::INBOUND_MAIL_BYTES;
    for file in &mut files {
        let url = file.get("download_url").and_then(Value::as_str).map(str::to_owned);
        let url = url.ok_or_else(|| desk.retry_later("a file has no download_url"))?;
        let content = download(desk, &url, left).await?;
        left -= content.len();
        file["content"] = json!(STANDARD.encode(content));
    }
    Ok(Value::Array(files))
}

/// What lies at a signed address. It is shown no credential: the address is one.
async fn download(desk: &AccountClient<'_>, url: &str, most: usize) -> Result<Vec<u8>, FetchError> {
    let (base, path) = download_location(&desk.base, url).ok_or_else(|| {
        FetchError::Permanent(
            "the mail is said to lie at an address that is not one of Resend's; it was not fetched".into(),
        )
    })?;
    Ok(desk.successful_body(desk.send(&base, ProviderRequest::get(path), most).await?)?.to_vec())
}

/// Host and path of a download, if it is where downloads are: at the API's own address, or at a host of Resend's.
fn download_location(api: &BaseUrl, url: &str) -> Option<(BaseUrl, String)> {
    let uri: Uri = url.parse().ok()?;
    let base = BaseUrl::parse(&format!("{}://{}", uri.scheme_str()?, uri.authority()?)).ok()?;
    let own = (base.is_https, &base.host, base.port) == (api.is_https, &api.host, api.port);
    let theirs = base.is_https && base.port == 443 && base.host.ends_with(DOWNLOAD_HOST_SUFFIX);
    (own || theirs).then(|| (base, uri.path_and_query().map_or("/", |path| path.as_str()).to_owned()))
}

pub(super) async fn list(desk: &AccountClient<'_>, page: Option<&str>) -> Result<MailListPage, FetchError> {
    let after = page.map(|id| format!("&after={}", percent_encode(id))).unwrap_or_default();
    let call = ProviderRequest::get(format!("/emails/receiving?limit={PAGE_SIZE}{after}")).with_bearer(&desk.api_key);
    let mut list = desk.get_json(call, MAX_JSON_BYTES).await?;
    let more = list.get("has_more").and_then(Value::as_bool).unwrap_or(false);
    let Some(Value::Array(mails)) = list.get_mut("data").map(Value::take) else {
        return Err(desk.retry_later("the list has no data"));
    };
    let last = mails.last().and_then(|mail| mail.get("id")).and_then(Value::as_str).map(str::to_owned);
    let at = |mail: &Value| mail.get("created_at").and_then(Value::as_str).and_then(Time::parse);
    let mails = mails.into_iter().map(|about| MailListEntry { at: at(&about), fields: about }).collect();
    Ok(MailListPage { mails, next: last.filter(|_| more) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_lie_at_the_api_or_at_a_host_of_resend() {
        let api = BaseUrl::parse(DEFAULT_BASE_URL).unwrap();
        let (base, path) = download_location(&api, "https://inbound-cdn.resend.com/a/b?x=1&signature=s").unwrap();
        assert_eq!((base.host.as_str(), path.as_str()), ("inbound-cdn.resend.com", "/a/b?x=1&signature=s"));
        assert!(download_location(&api, "https://api.resend.com/raw").is_some());
        for elsewhere in [
            "http://inbound-cdn.resend.com/a",
            "https://inbound-cdn.resend.com:8443/a",
            "https://evilresend.com/a",
            "https://resend.com.evil.test/a",
            "https://user@inbound-cdn.resend.com/a",
            "https://169.254.169.254/latest",
            "file:///etc/passwd",
            "",
        ] {
            assert!(download_location(&api, elsewhere).is_none(), "{elsewhere}");
        }
        let fake = BaseUrl::parse("http://127.0.0.1:9").unwrap();
        assert!(download_location(&fake, "http://127.0.0.1:9/raw/1").is_some());
        assert!(download_location(&fake, "http://127.0.0.1:10/raw/1").is_none());
    }
}
