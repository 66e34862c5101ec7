//! Mail that providers hold: one GET on one connection, bounded in size and time, and what its status means.
//!
//! | file | what it holds |
//! |---|---|
//! | `resend` `postmark` `nylas` | one provider each: its paths and the form of its answers |
//!
//! A tenant may name the address of an API, so every address is asked of a guard before it is dialled, and no redirect
//! is followed.

mod nylas;
mod postmark;
mod resend;

use async_trait::async_trait;
use bytes::Bytes;
use mailonce_core::{
    inbound::provider_mail::{FetchError, FetchedMail, MailListPage, ProviderAccount, ProviderMailRef},
    limits,
    ports::mail_fetcher::MailFetcher,
    time::Time,
};
use serde_json::Value;
use std::time::Duration;

use crate::http::{
    AddressFilter, ProviderRequest, Secret, TransportConfigError,
    base::BaseUrl,
    connection::{ProviderBodyError, ProviderConnector, ProviderResponse},
};

/// How long connecting may take, and again the answer: both together less than a delivery may be read.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of an answer that lists or describes: texts may be long, files are not in it.
const MAX_JSON_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of a mail inside JSON, where half of them may be escaped.
const MAX_ENCODED_MAIL_BYTES: usize = 2 * limits::INBOUND_MAIL_BYTES;

/// Asks providers for mail.
#[derive(Clone)]
pub struct HttpMailCollector {
    address_filter: Option<AddressFilter>,
    allow_http: bool,
}

impl HttpMailCollector {
    /// `guard` says which addresses may be dialled; `plain` whether an API without TLS may be asked.
    pub fn new(guard: Option<AddressFilter>, plain: bool) -> Self {
        Self { address_filter: guard, allow_http: plain }
    }

    /// Where an account's API begins.
    fn base_url(&self, account: &ProviderAccount) -> Result<BaseUrl, String> {
        let usual = match account.provider {
            "resend" => resend::DEFAULT_BASE_URL,
            "postmark" => postmark::DEFAULT_BASE_URL,
            "nylas" => nylas::DEFAULT_BASE_URL,
            other => return Err(format!("mail is not fetched from {other}")),
        };
        let base =
            BaseUrl::parse(account.base_url.as_deref().unwrap_or(usual)).map_err(|TransportConfigError(why)| why)?;
        if !base.is_https && !self.allow_http {
            return Err(format!("{} is not https", base.url));
        }
        Ok(base)
    }

    fn client<'a>(&'a self, account: &'a ProviderAccount) -> Result<AccountClient<'a>, FetchError> {
        let base = self.base_url(account).map_err(FetchError::Permanent)?;
        Ok(AccountClient { collector: self, base, api_key: Secret::new(account.api_key.clone()), account })
    }
}

/// One account's API.
struct AccountClient<'a> {
    collector: &'a HttpMailCollector,
    base: BaseUrl,
    api_key: Secret,
    account: &'a ProviderAccount,
}

impl AccountClient<'_> {
    /// The answer to a question, whatever its status.
    async fn send(&self, base: &BaseUrl, call: ProviderRequest, most: usize) -> Result<ProviderResponse, FetchError> {
        let later = |why: String| FetchError::Temporary { reason: self.without_api_key(why), retry_after_ms: None };
        let door = ProviderConnector::new(
            base.clone(),
            self.collector.address_filter.clone(),
            COLLECT_TIMEOUT,
            COLLECT_TIMEOUT,
            &[],
        );
        let mut door = door.map_err(|TransportConfigError(why)| FetchError::Permanent(why))?;
        door.max_body_bytes = most;
        let request = call.build(base).map_err(FetchError::Permanent)?;
        let line = door.connect().await.map_err(|reply| later(reply.text))?;
        line.send(request).await.map_err(|lost| later(lost.into_reply().text))
    }

    /// The body of a success.
    async fn get_body(&self, call: ProviderRequest, most: usize) -> Result<Bytes, FetchError> {
        self.successful_body(self.send(&self.base, call, most).await?)
    }

    /// The JSON object of a success.
    async fn get_json(&self, call: ProviderRequest, most: usize) -> Result<Value, FetchError> {
        let body = self.get_body(call, most).await?;
        match serde_json::from_slice::<Value>(&body) {
            Ok(value) if value.is_object() => Ok(value),
            // Somebody else's page, or one that broke off: the provider itself may answer later.
            _ => Err(self.retry_later("the answer is no JSON object")),
        }
    }

    /// The body of an answer, when it is a success.
    fn successful_body(&self, answer: ProviderResponse) -> Result<Bytes, FetchError> {
        let (status, pause_ms) = (answer.status, answer.retry_after_ms());
        let text =
            || self.without_api_key(format!("{} answered {status}: {}", self.account.provider, answer.excerpt()));
        match status {
            200 => match answer.body {
                Ok(body) => Ok(body),
                Err(cut @ ProviderBodyError::TooLong(_)) => Err(FetchError::Permanent(cut.to_string())),
                Err(cut @ ProviderBodyError::Incomplete(_)) => {
                    Err(FetchError::Temporary { reason: cut.to_string(), retry_after_ms: None })
                }
            },
            404 | 410 => Err(FetchError::NotFound(text())),
            // A credential can be given anew, a redirect is not followed and may end.
            300..=399 | 401..=403 | 407 | 408 | 425 | 429 | 500.. => {
                Err(FetchError::Temporary { reason: text(), retry_after_ms: pause_ms })
            }
            _ => Err(FetchError::Permanent(text())),
        }
    }

    fn retry_later(&self, why: &str) -> FetchError {
        FetchError::Temporary { reason: format!("{}: {why}", self.account.provider), retry_after_ms: None }
    }

    /// Words without our own credential, should somebody quote it.
    fn without_api_key(&self, text: String) -> String {
        if self.account.api_key.is_empty() { text } else { text.replace(&self.account.api_key, "…") }
    }
}

/// A mail that is not larger than any mail may be.
fn check_mail_size(raw: Vec<u8>) -> Result<FetchedMail, FetchError> {
    if raw.len() > limits::INBOUND_MAIL_BYTES {
        return Err(FetchError::Permanent(format!("the mail is larger than {} bytes", limits::INBOUND_MAIL_BYTES)));
    }
    Ok(FetchedMail::Mime(raw))
}

#[async_trait]
impl MailFetcher for HttpMailCollector {
    fn check_account(&self, account: &ProviderAccount) -> Result<(), String> {
        self.base_url(account).map(drop)
    }

    async fn fetch(&self, account: &ProviderAccount, notice: &ProviderMailRef) -> Result<FetchedMail, FetchError> {
        let desk = self.client(account)?;
        match account.provider {
            "resend" => resend::fetch(&desk, notice).await,
            "postmark" => postmark::fetch(&desk, notice).await,
            _ => nylas::fetch(&desk, notice).await,
        }
    }

    async fn list(
        &self,
        account: &ProviderAccount,
        since: Time,
        page: Option<&str>,
    ) -> Result<MailListPage, FetchError> {
        let desk = self.client(account)?;
        match account.provider {
            "resend" => resend::list(&desk, page).await,
            "postmark" => postmark::list(&desk, since, page).await,
            other => Err(FetchError::Permanent(format!("{other} is not asked for a list"))),
        }
    }
}
