//! A reader of events that resumes by its cursor.

use mailonce_sim::failover::clients::judge_readers;

use crate::node::{Answer, Node};

#[derive(Default)]
pub(crate) struct Reader {
    cursor: Option<String>,
    /// What it was shown: one list for each time that it began anew.
    shown: Vec<Vec<(u64, String)>>,
    pub(crate) resets: usize,
}

impl Reader {
    /// Reads to the end, and begins anew when the node says so. Event numbers have no gaps.
    pub(crate) async fn read_on(&mut self, node: &Node) -> Result<(), String> {
        loop {
            let after = self.cursor.clone().unwrap_or_else(|| "0".into());
            let answer = node.get(&format!("/v1/events?limit=1000&after={after}")).await;
            match answer.status {
                200 => {}
                410 if self.cursor.take().is_some() => {
                    self.resets += 1;
                    self.shown.push(Vec::new());
                    continue;
                }
                _ => return Err(format!("events after {after} were answered {answer:?}")),
            }
            self.note(&answer)?;
            if answer.rows().is_empty() {
                return Ok(());
            }
        }
    }

    fn note(&mut self, answer: &Answer) -> Result<(), String> {
        if self.shown.is_empty() {
            self.shown.push(Vec::new());
        }
        let Some(list) = self.shown.last_mut() else { return Ok(()) };
        for row in answer.rows() {
            let (seq, id) = (row["seq"].as_u64().unwrap_or_default(), row["id"].as_str().unwrap_or_default());
            let expected = list.last().map_or(1, |(last, _)| last + 1);
            if seq != expected {
                return Err(format!("a reader was shown event {seq} where {expected} was next"));
            }
            list.push((seq, id.to_owned()));
            self.cursor = row["cursor"].as_str().map(str::to_owned);
        }
        Ok(())
    }

    /// Compares what it was shown with all events that there are in the end.
    pub(crate) async fn judge(&self, node: &Node) -> Vec<String> {
        let mut fresh = Self::default();
        if let Err(violation) = Box::pin(fresh.read_on(node)).await {
            return vec![violation];
        }
        judge_readers(&self.shown, &fresh.shown.concat())
    }
}
