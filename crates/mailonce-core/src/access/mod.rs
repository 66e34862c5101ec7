//! Teams, API keys and what a team owns.

pub mod team;
