//! Lists that come in pages.

use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, pin::Pin};

use crate::error::Error;

/// A page of a list without filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageQuery {
    /// Most items to return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

type Pages<T> = Pin<Box<dyn Future<Output = Result<(Vec<T>, Option<String>), Error>> + Send>>;

/// Every item of every page, one after the other.
pub struct Each<T> {
    page: Box<dyn FnMut(Option<String>) -> Pages<T> + Send>,
    waiting: VecDeque<T>,
    cursor: Option<String>,
    over: bool,
}

impl<T> std::fmt::Debug for Each<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Each").field("cursor", &self.cursor).field("over", &self.over).finish_non_exhaustive()
    }
}

impl<T> Each<T> {
    pub(crate) fn new<F>(cursor: Option<String>, mut page: impl FnMut(Option<String>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(Vec<T>, Option<String>), Error>> + Send + 'static,
    {
        let page = Box::new(move |cursor| Box::pin(page(cursor)) as Pages<T>);
        Self { page, waiting: VecDeque::new(), cursor, over: false }
    }

    /// The next item; `None` at the end of the last page. After an error, calling it again fetches the same page.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                return Ok(Some(item));
            }
            if self.over {
                return Ok(None);
            }
            let (data, cursor) = (self.page)(self.cursor.clone()).await?;
            self.waiting.extend(data);
            self.over = cursor.is_none();
            self.cursor = cursor;
        }
    }

    /// Collects the remaining items.
    pub async fn all(mut self) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        while let Some(item) = self.next().await? {
            all.push(item);
        }
        Ok(all)
    }
}
