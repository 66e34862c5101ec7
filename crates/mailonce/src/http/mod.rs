//! What the HTTP API, the dialects and MCP share: application state, extractors, JSON readers and error responses.
//!
//! | file | what it holds |
//! |---|---|
//! | `app` | the state that handlers receive |
//! | `download` | headers of a file to download |
//! | `event_stream` | a response of server-sent events |
//! | `extract` | authentication, idempotency keys and bodies of a request |
//! | `html` | text in HTML pages |
//! | `next_page` | the page to which a sign-in leads |
//! | `oauth_urls` | addresses that OAuth clients of `/mcp` see |
//! | `params` | path and query parameters |
//! | `json_body` | parses JSON bodies |
//! | `json` | readers for JSON values |
//! | `paths` | paths that the listener treats in their own way |
//! | `problem` | error responses |
//! | `router` | serves one request, and turns panics into error responses |
//! | `session_cookie` | the cookie with the session of a person |

pub mod app;
pub(crate) mod download;
pub(crate) mod event_stream;
pub(crate) mod extract;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod json_body;
pub(crate) mod next_page;
pub(crate) mod oauth_urls;
pub(crate) mod params;
pub(crate) mod paths;
pub(crate) mod problem;
pub(crate) mod router;
pub(crate) mod session_cookie;

pub use session_cookie::IsHttps;
