//! Fetches received mail from providers: one GET per connection, with limits on size and time.
//!
//! | file | what it holds |
//! |---|---|
//! | `resend` `postmark` `nylas` | one provider each: its paths and response formats |
//!
//! A tenant may configure the API's base URL, so an address filter checks every address, and redirects are not
//! followed.

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

/// The timeout for connecting, and again for the response. Both together are shorter than the time a delivery may take.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of a JSON response that lists or describes mails. Texts may be long; attachments are not included.
const MAX_JSON_BYTES: usize = 16 * 1024 * 1024;
/// Maximum size of a JSON response that contains a raw mail, which encoding may double.
const MAX_ENCODED_MAIL_BYTES: usize = 2 * limits::INBOUND_MAIL_BYTES;

/// Fetches mail from the APIs of providers.
#[derive(Clone)]
pub struct HttpMailCollector {
    address_filter: Option<AddressFilter>,
    allow_http: bool,
}

impl HttpMailCollector {
    /// `address_filter` decides which addresses may be dialled; `allow_http` permits an API without TLS.
    pub fn new(address_filter: Option<AddressFilter>, allow_http: bool) -> Self {
        Self { address_filter, allow_http }
    }

    /// The base URL of an account's API.
    fn base_url(&self, account: &ProviderAccount) -> Result<BaseUrl, String> {
        let default_url = match account.provider {
            "resend" => resend::DEFAULT_BASE_URL,
            "postmark" => postmark::DEFAULT_BASE_URL,
            "nylas" => nylas::DEFAULT_BASE_URL,
            other => return Err(format!("mail cannot be fetched from {other}")),
        };
        let base = BaseUrl::parse(account.base_url.as_deref().unwrap_or(default_url))
            .map_err(|TransportConfigError(why)| why)?;
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

/// A client for one account's API.
struct AccountClient<'a> {
    collector: &'a HttpMailCollector,
    base: BaseUrl,
    api_key: Secret,
    account: &'a ProviderAccount,
}

impl AccountClient<'_> {
    /// Sends a request and returns the response, whatever its status.
    async fn send(
        &self,
        base: &BaseUrl,
        call: ProviderRequest,
        max_bytes: usize,
    ) -> Result<ProviderResponse, FetchError> {
        let temporary = |why: String| FetchError::Temporary { reason: self.without_api_key(why), retry_after_ms: None };
        let connector = ProviderConnector::new(
            base.clone(),
            self.collector.address_filter.clone(),
            COLLECT_TIMEOUT,
            COLLECT_TIMEOUT,
            &[],
        );
        let mut connector = connector.map_err(|TransportConfigError(why)| FetchError::Permanent(why))?;
        connector.max_body_bytes = max_bytes;
        let request = call.build(base).map_err(FetchError::Permanent)?;
        let connection = connector.connect().await.map_err(|reply| temporary(reply.text))?;
        connection.send(request).await.map_err(|lost| temporary(lost.into_reply().text))
    }

    /// Sends a request and returns the body of a 200.
    async fn get_body(&self, call: ProviderRequest, max_bytes: usize) -> Result<Bytes, FetchError> {
        self.successful_body(self.send(&self.base, call, max_bytes).await?)
    }

    /// Sends a request and returns the JSON object of a 200.
    async fn get_json(&self, call: ProviderRequest, max_bytes: usize) -> Result<Value, FetchError> {
        let body = self.get_body(call, max_bytes).await?;
        match serde_json::from_slice::<Value>(&body) {
            Ok(value) if value.is_object() => Ok(value),
            // A proxy's page or a truncated response: the provider itself may answer later.
            _ => Err(self.retry_later("the response is not a JSON object")),
        }
    }

    /// The body of a 200; every other status becomes an error.
    fn successful_body(&self, response: ProviderResponse) -> Result<Bytes, FetchError> {
        let (status, retry_after_ms) = (response.status, response.retry_after_ms());
        let text =
            || self.without_api_key(format!("{} answered {status}: {}", self.account.provider, response.excerpt()));
        match status {
            200 => match response.body {
                Ok(body) => Ok(body),
                Err(error @ ProviderBodyError::TooLong(_)) => Err(FetchError::Permanent(error.to_string())),
                Err(error @ ProviderBodyError::Incomplete(_)) => {
                    Err(FetchError::Temporary { reason: error.to_string(), retry_after_ms: None })
                }
            },
            404 | 410 => Err(FetchError::NotFound(text())),
            // Temporary: a credential can be replaced, and a redirect (which is not followed) may disappear.
            300..=399 | 401..=403 | 407 | 408 | 425 | 429 | 500.. => {
                Err(FetchError::Temporary { reason: text(), retry_after_ms })
            }
            _ => Err(FetchError::Permanent(text())),
        }
    }

    fn retry_later(&self, why: &str) -> FetchError {
        FetchError::Temporary { reason: format!("{}: {why}", self.account.provider), retry_after_ms: None }
    }

    /// Masks our API key, in case the response quotes it.
    fn without_api_key(&self, text: String) -> String {
        if self.account.api_key.is_empty() { text } else { text.replace(&self.account.api_key, "…") }
    }
}

/// Rejects a mail above the size limit for inbound mail.
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
        let client = self.client(account)?;
        match account.provider {
            "resend" => resend::fetch(&client, notice).await,
            "postmark" => postmark::fetch(&client, notice).await,
            _ => nylas::fetch(&client, notice).await,
        }
    }

    async fn list(
        &self,
        account: &ProviderAccount,
        since: Time,
        page: Option<&str>,
    ) -> Result<MailListPage, FetchError> {
        let client = self.client(account)?;
        match account.provider {
            "resend" => resend::list(&client, page).await,
            "postmark" => postmark::list(&client, since, page).await,
            other => Err(FetchError::Permanent(format!("mail of {other} cannot be listed"))),
        }
    }
}
