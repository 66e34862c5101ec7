//! Teams, API keys and what a team owns.

pub(crate) mod teams;
