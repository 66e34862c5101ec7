//! A reader of events that resumes by its cursor.

use mailonce_sim::failover::clients::check_readers;

use crate::node::{DifferentialNode, NodeResponse};

#[derive(Default)]
pub(crate) struct CursorReader {
    cursor: Option<String>,
    /// What it was shown: one list for each time that it began anew.
    events_read: Vec<Vec<(u64, String)>>,
    pub(crate) resets: usize,
}

impl CursorReader {
    /// Reads to the end, and begins anew when the node says so. Event numbers have no gaps.
    pub(crate) async fn read_on(&mut self, node: &DifferentialNode) -> Result<(), String> {
        loop {
            let after = self.cursor.clone().unwrap_or_else(|| "0".into());
            let answer = node.get(&format!("/v1/events?limit=1000&after={after}")).await;
            match answer.status {
                200 => {}
                410 if self.cursor.take().is_some() => {
                    self.resets += 1;
                    self.events_read.push(Vec::new());
                    continue;
                }
                _ => return Err(format!("events after {after} were answered {answer:?}")),
            }
            self.record_events(&answer)?;
            if answer.rows().is_empty() {
                return Ok(());
            }
        }
    }

    fn record_events(&mut self, answer: &NodeResponse) -> Result<(), String> {
        if self.events_read.is_empty() {
            self.events_read.push(Vec::new());
        }
        let Some(list) = self.events_read.last_mut() else { return Ok(()) };
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
    pub(crate) async fn check_against(&self, node: &DifferentialNode) -> Vec<String> {
        let mut fresh = Self::default();
        if let Err(violation) = Box::pin(fresh.read_on(node)).await {
            return vec![violation];
        }
        check_readers(&self.events_read, &fresh.events_read.concat())
    }
}
