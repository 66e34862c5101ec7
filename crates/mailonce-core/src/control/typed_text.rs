//! Texts that people typed about their own installation, such as the name of an API key. An erasure replaces the address
//! of the person in them.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    access::team::ApiKeyDetails,
    control::{erasure::AddressEraser, stop::Stop},
    events::endpoint::EndpointConfig,
    inbox::InboxSettings,
};

/// What a person typed a text about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypedText {
    /// The names of API keys.
    ApiKeys,
    /// The descriptions of endpoints.
    Endpoints,
    /// The names and the metadata of inboxes.
    Inboxes,
    /// The reasons and the authors of stops.
    Stops,
}

impl TypedText {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ApiKeys, Self::Endpoints, Self::Inboxes, Self::Stops];

    /// The JSON of a row with the alias in the place of the address. `None` when its texts don't contain it.
    pub fn redact_row(self, eraser: &AddressEraser, json: &str) -> serde_json::Result<Option<String>> {
        match self {
            Self::ApiKeys => redact_as(json, |details: &mut ApiKeyDetails| details.redact(eraser)),
            Self::Endpoints => redact_as(json, |config: &mut EndpointConfig| config.redact(eraser)),
            Self::Inboxes => redact_as(json, |settings: &mut InboxSettings| settings.redact(eraser)),
            Self::Stops => redact_as(json, |stop: &mut Stop| stop.redact(eraser)),
        }
    }
}

fn redact_as<T: Serialize + DeserializeOwned>(
    json: &str,
    redact: impl FnOnce(&mut T) -> bool,
) -> serde_json::Result<Option<String>> {
    let mut row: T = serde_json::from_str(json)?;
    if redact(&mut row) { serde_json::to_string(&row).map(Some) } else { Ok(None) }
}
