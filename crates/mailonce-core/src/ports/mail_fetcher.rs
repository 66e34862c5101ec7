//! Received mail that a provider stores, and that mailonce lists and fetches through the provider's API.

use async_trait::async_trait;

use crate::{
    inbound::provider_mail::{FetchError, FetchedMail, MailListPage, ProviderAccount, ProviderMailRef},
    ports::network::NoNetwork,
    time::Time,
};

/// A client for providers that store mail. It never retries; the caller decides.
#[async_trait]
pub trait MailFetcher: Send + Sync + 'static {
    /// Checks whether the account is usable, without any request. The error says what is wrong with it.
    fn check_account(&self, account: &ProviderAccount) -> Result<(), String>;
    /// Fetches one mail.
    async fn fetch(&self, account: &ProviderAccount, notice: &ProviderMailRef) -> Result<FetchedMail, FetchError>;
    /// Lists the mails received since `since`, and possibly older ones, one page per call.
    async fn list(
        &self,
        account: &ProviderAccount,
        since: Time,
        page: Option<&str>,
    ) -> Result<MailListPage, FetchError>;
}

#[async_trait]
impl MailFetcher for NoNetwork {
    fn check_account(&self, _: &ProviderAccount) -> Result<(), String> {
        Ok(())
    }

    async fn fetch(&self, _: &ProviderAccount, _: &ProviderMailRef) -> Result<FetchedMail, FetchError> {
        Err(FetchError::Permanent("mail is not fetched here".into()))
    }

    async fn list(&self, _: &ProviderAccount, _: Time, _: Option<&str>) -> Result<MailListPage, FetchError> {
        Err(FetchError::Permanent("mail is not listed here".into()))
    }
}
