//! Query parameters as AgentMail's SDKs send them: a list is one parameter with a JSON array.

use mailonce_core::{problem::Problem, time::Time};
use serde_json::{Value, json};

use crate::http::extract::percent_decode;

/// Default number of rows per page.
const DEFAULT_LIMIT: usize = 20;
/// Maximum number of rows per page.
const MAX_LIMIT: usize = 100;

/// The decoded query parameters.
pub(super) struct AgentMailQuery(Vec<(String, String)>);

impl AgentMailQuery {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let part = |text: &str| String::from_utf8_lossy(&percent_decode(&text.replace('+', " "))).into_owned();
        Self(pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(n, v)| (part(n), part(v))).collect())
    }

    /// The last value of a parameter.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter: a JSON array, a repeated parameter, or a single value.
    pub(super) fn list(&self, name: &str) -> Result<Vec<String>, Problem> {
        let mut all = Vec::new();
        for (_, value) in self.0.iter().filter(|(key, _)| key == name) {
            if value.starts_with('[') {
                let invalid =
                    |_not_a_list| Problem::invalid_query(name, format!("{name} must be a JSON array of strings"));
                all.extend(serde_json::from_str::<Vec<String>>(value).map_err(invalid)?);
            } else {
                all.push(value.clone());
            }
        }
        Ok(all)
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.last(name).unwrap_or("false").to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" | "" => Ok(false),
            _ => Err(Problem::invalid_query(name, format!("{name} must be true or false"))),
        }
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<Time>, Problem> {
        let parse = |text: &str| {
            Time::parse(text)
                .ok_or_else(|| Problem::invalid_query(name, format!("{name} must be a time with an offset")))
        };
        self.last(name).map(parse).transpose()
    }

    pub(super) fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.last("limit") else { return Ok(DEFAULT_LIMIT) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| Problem::invalid_query("limit", format!("limit must be a number from 1 to {MAX_LIMIT}")))
    }

    /// The offset of a page in a list that is read completely.
    pub(super) fn offset(&self) -> Result<usize, Problem> {
        Ok(self.page_token::<1>()?.map_or(0, |[begin]| usize::try_from(begin).unwrap_or(usize::MAX)))
    }

    /// A page of a list that was read completely, and the token of the next page.
    pub(super) fn paginate<T>(&self, all: Vec<T>) -> Result<(Vec<T>, Option<String>), Problem> {
        let (begin, limit) = (self.offset()?, self.limit()?);
        let end = begin.saturating_add(limit);
        let next = (end < all.len()).then(|| encode_page_token(&[end as u128]));
        Ok((all.into_iter().skip(begin).take(limit).collect(), next))
    }

    /// A page of a list, oldest first. The store lists newest first, so the complete list is read and reversed.
    /// `has_more` means that the list was too long to be read completely, which is an error.
    pub(super) fn paginate_oldest_first<T>(
        &self,
        mut newest: Vec<T>,
        has_more: bool,
    ) -> Result<(Vec<T>, Option<String>), Problem> {
        if has_more {
            let text = format!("ascending is limited to {} rows; narrow the list with after", newest.len());
            return Err(Problem::invalid_query("ascending", text));
        }
        newest.reverse();
        self.paginate(newest)
    }

    /// The numbers in the page token, as `encode_page_token` wrote them.
    pub(super) fn page_token<const N: usize>(&self) -> Result<Option<[u128; N]>, Problem> {
        let Some(text) = self.last("page_token") else { return Ok(None) };
        let invalid = || Problem::invalid_query("page_token", "page_token must be the next_page_token of another page");
        let numbers = text.split('-').map(|part| u128::from_str_radix(part, 36).ok());
        let numbers: Vec<u128> = numbers.collect::<Option<_>>().ok_or_else(invalid)?;
        numbers.try_into().map(Some).map_err(|_count| invalid())
    }
}

/// A page of a list, with the token of the next page.
pub(super) fn page_json(name: &str, rows: Vec<Value>, limit: usize, next: Option<String>) -> Value {
    let mut body = json!({ "count": rows.len(), "limit": limit });
    body[name] = rows.into();
    if let Some(next) = next {
        body["next_page_token"] = next.into();
    }
    body
}

/// Encodes a position in a list as a page token.
pub(super) fn encode_page_token(numbers: &[u128]) -> String {
    let to_base36 = |number: &u128| {
        let (mut rest, mut digits) = (*number, Vec::new());
        loop {
            digits.push(char::from_digit((rest % 36) as u32, 36).unwrap_or('0'));
            rest /= 36;
            if rest == 0 {
                break;
            }
        }
        digits.iter().rev().collect::<String>()
    };
    numbers.iter().map(to_base36).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_as_json_again_and_again_or_alone() {
        for text in ["labels=%5B%22a%22%2C%22b+c%22%5D", "labels=a&labels=b%20c", "labels=[\"a\",\"b c\"]"] {
            assert_eq!(AgentMailQuery::parse(text).list("labels").unwrap(), ["a", "b c"], "{text}");
        }
        assert_eq!(AgentMailQuery::parse("labels=a").list("labels").unwrap(), ["a"]);
        assert!(AgentMailQuery::parse("labels=[1]").list("labels").is_err());
        assert!(AgentMailQuery::parse("").list("labels").unwrap().is_empty());
    }

    #[test]
    fn places_are_read_as_they_were_written() {
        let position = [u128::MAX, 0, 35, 36];
        let query = AgentMailQuery::parse(&format!("page_token={}", encode_page_token(&position)));
        assert_eq!(query.page_token::<4>().unwrap(), Some(position));
        assert!(query.page_token::<3>().is_err());
        for bad in ["page_token=", "page_token=a_b-1-2-3", "page_token=1"] {
            assert!(AgentMailQuery::parse(bad).page_token::<4>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_complete_list_is_paginated_oldest_first() {
        let page =
            |text: &str, has_more| AgentMailQuery::parse(text).paginate_oldest_first(vec![5, 4, 3, 2, 1], has_more);
        assert_eq!(page("limit=2", false).unwrap(), (vec![1, 2], Some("2".to_owned())));
        assert_eq!(page("limit=2&page_token=2", false).unwrap(), (vec![3, 4], Some("4".to_owned())));
        assert_eq!(page("limit=2&page_token=4", false).unwrap(), (vec![5], None));
        assert_eq!(page("page_token=zzzzzzzzzzzzzzz", false).unwrap(), (vec![], None));
        assert!(page("limit=2", true).is_err());
    }

    #[test]
    fn words_are_read_in_any_case_and_nonsense_is_refused() {
        let query = AgentMailQuery::parse("a=True&b=false&c=x&limit=7&t=2026-11-15T10:00:00%2B00:00");
        assert!(query.flag("a").unwrap() && !query.flag("b").unwrap() && !query.flag("d").unwrap());
        assert!(query.flag("c").is_err());
        assert_eq!(query.limit().unwrap(), 7);
        assert!(query.time("t").unwrap().is_some() && query.time("c").is_err());
        for bad in ["limit=0", "limit=101", "limit=x"] {
            assert!(AgentMailQuery::parse(bad).limit().is_err(), "{bad}");
        }
    }
}
