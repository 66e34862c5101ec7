//! Resend: `GET /emails/receiving/{id}` names where the mail lies; `GET /emails/receiving` lists, newest first.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::Uri;
use mailonce_core::{
    limits,
    port::collect::{Given, Listed, Notice, Page, Withheld},
    time::Time,
};
use serde_json::{Value, json};

use super::{Desk, TOLD_BYTES, bounded};
use crate::http::{
    Call,
    base::{Base, escaped},
};

pub(super) const USUAL_URL: &str = "https://api.resend.com";
/// Where mails and files are downloaded from, besides the API's own host.
const DOWNLOADS: &str = ".resend.com";
/// Mails of one page.
const PAGE: usize = 100;
/// Files of one mail.
const FILES: usize = 200;

pub(super) async fn fetch(desk: &Desk<'_>, notice: &Notice) -> Result<Given, Withheld> {
    let path = format!("/emails/receiving/{}", escaped(&notice.id));
    // Pictures stay files of their own, or the text would hold them all.
    let mut mail = desk.object(Call::get(format!("{path}?html_format=cid")).bearer(&desk.api_key), TOLD_BYTES).await?;
    if let Some(url) = mail.pointer("/raw/download_url").and_then(Value::as_str) {
        return bounded(download(desk, url, limits::MAIL_BYTES).await?);
    }
    if mail.pointer("/attachments").and_then(Value::as_array).is_some_and(|files| !files.is_empty()) {
        mail["attachments"] = files(desk, &path).await?;
    }
    Ok(Given::Fields(mail))
}

/// The files of a mail, each with its content.
async fn files(desk: &Desk<'_>, path: &str) -> Result<Value, Withheld> {
    let call = Call::get(format!("{path}/attachments?limit={PAGE}")).bearer(&desk.api_key);
    let mut list = desk.object(call, TOLD_BYTES).await?;
    let listed = list.get_mut("data").map(Value::take).unwrap_or_default();
    let Value::Array(mut files) = listed else { return Err(desk.later("the list of files has no data")) };
    if files.len() > FILES || list.get("has_more").and_then(Value::as_bool) == Some(true) {
        return Err(Withheld::Never("the mail has more files than are fetched".into()));
    }
    let mut left = limits::MAIL_BYTES;
    for file in &mut files {
        let url = file.get("download_url").and_then(Value::as_str).map(str::to_owned);
        let url = url.ok_or_else(|| desk.later("a file has no download_url"))?;
        let content = download(desk, &url, left).await?;
        left -= content.len();
        file["content"] = json!(STANDARD.encode(content));
    }
    Ok(Value::Array(files))
}

/// What lies at a signed address. It is shown no credential: the address is one.
async fn download(desk: &Desk<'_>, url: &str, most: usize) -> Result<Vec<u8>, Withheld> {
    let (base, path) = place(&desk.base, url).ok_or_else(|| {
        Withheld::Never("the mail is said to lie at an address that is not one of Resend's; it was not fetched".into())
    })?;
    Ok(desk.body(desk.ask(&base, Call::get(path), most).await?)?.to_vec())
}

/// Host and path of a download, if it is where downloads are: at the API's own address, or at a host of Resend's.
fn place(api: &Base, url: &str) -> Option<(Base, String)> {
    let uri: Uri = url.parse().ok()?;
    let base = Base::parse(&format!("{}://{}", uri.scheme_str()?, uri.authority()?)).ok()?;
    let own = (base.https, &base.host, base.port) == (api.https, &api.host, api.port);
    let theirs = base.https && base.port == 443 && base.host.ends_with(DOWNLOADS);
    (own || theirs).then(|| (base, uri.path_and_query().map_or("/", |path| path.as_str()).to_owned()))
}

pub(super) async fn list(desk: &Desk<'_>, page: Option<&str>) -> Result<Page, Withheld> {
    let after = page.map(|id| format!("&after={}", escaped(id))).unwrap_or_default();
    let call = Call::get(format!("/emails/receiving?limit={PAGE}{after}")).bearer(&desk.api_key);
    let mut list = desk.object(call, TOLD_BYTES).await?;
    let more = list.get("has_more").and_then(Value::as_bool).unwrap_or(false);
    let Some(Value::Array(mails)) = list.get_mut("data").map(Value::take) else {
        return Err(desk.later("the list has no data"));
    };
    let last = mails.last().and_then(|mail| mail.get("id")).and_then(Value::as_str).map(str::to_owned);
    let at = |mail: &Value| mail.get("created_at").and_then(Value::as_str).and_then(Time::parse);
    let mails = mails.into_iter().map(|about| Listed { at: at(&about), about }).collect();
    Ok(Page { mails, next: last.filter(|_| more) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_lie_at_the_api_or_at_a_host_of_resend() {
        let api = Base::parse(USUAL_URL).unwrap();
        let (base, path) = place(&api, "https://inbound-cdn.resend.com/a/b?x=1&signature=s").unwrap();
        assert_eq!((base.host.as_str(), path.as_str()), ("inbound-cdn.resend.com", "/a/b?x=1&signature=s"));
        assert!(place(&api, "https://api.resend.com/raw").is_some());
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
            assert!(place(&api, elsewhere).is_none(), "{elsewhere}");
        }
        let fake = Base::parse("http://127.0.0.1:9").unwrap();
        assert!(place(&fake, "http://127.0.0.1:9/raw/1").is_some());
        assert!(place(&fake, "http://127.0.0.1:10/raw/1").is_none());
    }
}
