//! Paths that the listener treats in their own way.

/// Whether a request is for MCP. Some clients add a slash to every URL.
pub(crate) fn is_mcp_path(path: &str) -> bool {
    matches!(path, "/mcp" | "/mcp/")
}

/// Whether programs in pages of any site may call a path. The endpoints of OAuth use no cookie, so such a page can do no more
/// than any other program.
pub(crate) fn is_open_to_pages(path: &str) -> bool {
    path.starts_with("/.well-known/oauth-") || matches!(path, "/oauth/register" | "/oauth/token" | "/oauth/revoke")
}
