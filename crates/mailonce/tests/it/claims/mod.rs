//! Claims: side effects that begin once.

mod lifecycle;
