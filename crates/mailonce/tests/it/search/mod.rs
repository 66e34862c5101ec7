//! Search over outbound and received mail.

mod full_text;
