//! Resend: `GET /emails/receiving/{id}` returns a download URL; `GET /emails/receiving` lists mails, newest first.

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
/// Hosts from which mails and attachments may be downloaded, besides the API's own host.
const DOWNLOAD_HOST_SUFFIX: &str = ".resend.com";
/// Entries per page: the most that Resend returns. A mail with more attachments is not fetched.
const PAGE_SIZE: usize = 100;

pub(super) async fn fetch(client: &AccountClient<'_>, notice: &ProviderMailRef) -> Result<FetchedMail, FetchError> {
    let path = format!("/emails/receiving/{}", percent_encode(&notice.id));
    // Inline images stay separate attachments. Otherwise the HTML would contain them as data URLs.
    let mut mail = client
        .get_json(ProviderRequest::get(format!("{path}?html_format=cid")).with_bearer(&client.api_key), MAX_JSON_BYTES)
        .await?;
    if let Some(url) = mail.pointer("/raw/download_url").and_then(Value::as_str) {
        return check_mail_size(download(client, url, limits::INBOUND_MAIL_BYTES).await?);
    }
    if mail.pointer("/attachments").and_then(Value::as_array).is_some_and(|files| !files.is_empty()) {
        mail["attachments"] = files(client, &path).await?;
    }
    Ok(FetchedMail::Fields(mail))
}

/// Downloads the attachments of a mail and adds their content to the list.
async fn files(client: &AccountClient<'_>, path: &str) -> Result<Value, FetchError> {
    let call = ProviderRequest::get(format!("{path}/attachments?limit={PAGE_SIZE}")).with_bearer(&client.api_key);
    let mut list = client.get_json(call, MAX_JSON_BYTES).await?;
    let listed = list.get_mut("data").map(Value::take).unwrap_or_default();
    let Value::Array(mut files) = listed else { return Err(client.retry_later("the list of attachments has no data")) };
    if files.len() > PAGE_SIZE || list.get("has_more").and_then(Value::as_bool) == Some(true) {
        return Err(FetchError::Permanent("the mail has too many attachments to fetch".into()));
    }
    let mut remaining_bytes = limits::INBOUND_MAIL_BYTES;
    for file in &mut files {
        let url = file.get("download_url").and_then(Value::as_str).map(str::to_owned);
        let url = url.ok_or_else(|| client.retry_later("an attachment has no download_url"))?;
        let content = download(client, &url, remaining_bytes).await?;
        remaining_bytes -= content.len();
        file["content"] = json!(STANDARD.encode(content));
    }
    Ok(Value::Array(files))
}

/// Downloads from a signed URL. No API key is sent, because the URL itself is a credential.
async fn download(client: &AccountClient<'_>, url: &str, max_bytes: usize) -> Result<Vec<u8>, FetchError> {
    let (base, path) = download_location(&client.base, url).ok_or_else(|| {
        FetchError::Permanent("the download URL is not on a Resend host; the mail was not fetched".into())
    })?;
    Ok(client.successful_body(client.send(&base, ProviderRequest::get(path), max_bytes).await?)?.to_vec())
}

/// Host and path of a download URL, if it is on the API's own host or on a Resend host.
fn download_location(api: &BaseUrl, url: &str) -> Option<(BaseUrl, String)> {
    let uri: Uri = url.parse().ok()?;
    let base = BaseUrl::parse(&format!("{}://{}", uri.scheme_str()?, uri.authority()?)).ok()?;
    let is_api_host = (base.is_https, &base.host, base.port) == (api.is_https, &api.host, api.port);
    let is_resend_host = base.is_https && base.port == 443 && base.host.ends_with(DOWNLOAD_HOST_SUFFIX);
    (is_api_host || is_resend_host).then(|| (base, uri.path_and_query().map_or("/", |path| path.as_str()).to_owned()))
}

pub(super) async fn list(client: &AccountClient<'_>, page: Option<&str>) -> Result<MailListPage, FetchError> {
    let after = page.map(|id| format!("&after={}", percent_encode(id))).unwrap_or_default();
    let call = ProviderRequest::get(format!("/emails/receiving?limit={PAGE_SIZE}{after}")).with_bearer(&client.api_key);
    let mut list = client.get_json(call, MAX_JSON_BYTES).await?;
    let has_more = list.get("has_more").and_then(Value::as_bool).unwrap_or(false);
    let Some(Value::Array(mails)) = list.get_mut("data").map(Value::take) else {
        return Err(client.retry_later("the list has no data"));
    };
    let last = mails.last().and_then(|mail| mail.get("id")).and_then(Value::as_str).map(str::to_owned);
    let at = |mail: &Value| mail.get("created_at").and_then(Value::as_str).and_then(Time::parse);
    let mails = mails.into_iter().map(|entry| MailListEntry { at: at(&entry), fields: entry }).collect();
    Ok(MailListPage { mails, next: last.filter(|_| has_more) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_are_limited_to_the_api_and_resend_hosts() {
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
