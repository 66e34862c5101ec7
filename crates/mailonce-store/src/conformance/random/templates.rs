//! Random steps of callers with templates; the calls for them, and what both stores return.

use mailonce_core::{
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    outbound::template::{AddVersionResult, CreateTemplateResult, Template, TemplateKey, TemplatePage, TemplateSource},
    time::Time,
};
use serde_json::json;
use std::collections::BTreeMap;
use uuid::Uuid;

use crate::conformance::{
    TestStore,
    fixtures::emails::next_id,
    random::step::{KeyChoice, OperationSpec, SplitMix64},
};

/// There are few names, so that they are often taken.
const NAMES: [&str; 4] = ["welcome", "Welcome", "order-1", "order.1"];

/// What is done. Templates are named by their recency; 0 is the latest.
#[derive(Clone, Debug)]
pub(super) enum TemplateCommand {
    Create { name: &'static str, wording: u8, call: Option<OperationSpec> },
    AddVersion { template: u8, seen: u32, wording: u8 },
    Remove(u8),
    RemoveVersion(u8, u32),
    Read { name: Option<&'static str>, template: u8, version: Option<u32> },
    List { before: Option<u8>, limit: usize },
}

impl TemplateCommand {
    pub(super) fn random(rng: &mut SplitMix64) -> Self {
        match rng.below(16) {
            0..=3 => Self::Create {
                name: rng.pick(&NAMES),
                wording: rng.below(2),
                call: rng.maybe_one_in(3, |rng| OperationSpec(KeyChoice::for_operation(rng), rng.below(2))),
            },
            4..=9 => Self::AddVersion { template: rng.below(4), seen: rng.pick(&[1, 1, 2, 3]), wording: rng.below(3) },
            10 => Self::Remove(rng.below(4)),
            11..=12 => Self::RemoveVersion(rng.below(4), rng.pick(&[1, 2, 3, 9])),
            13..=14 => Self::Read {
                name: rng.maybe_one_in(2, |rng| rng.pick(&NAMES)),
                template: rng.below(4),
                version: rng.maybe_one_in(2, |rng| rng.pick(&[1, 2, 3])),
            },
            _ => Self::List { before: rng.maybe_one_in(2, |rng| rng.below(4)), limit: rng.pick(&[1, 2, 100]) },
        }
    }
}

/// A complete call, the same for both stores.
#[derive(Clone, Debug)]
pub(super) enum TemplateCall {
    Create(Box<Template>, Option<KeyedOperation>),
    AddVersion(TeamId, Uuid, (u32, TemplateSource)),
    Remove(TeamId, Uuid),
    RemoveVersion(TeamId, Uuid, u32),
    Read(TeamId, TemplateKey, Option<u32>),
    List(TeamId, Option<Uuid>, usize),
}

/// The answer of a store.
#[derive(Debug, PartialEq)]
pub(super) enum TemplateAnswer {
    Create(IdempotentResult<CreateTemplateResult>),
    AddVersion(AddVersionResult),
    Template(Option<Template>),
    List(TemplatePage),
}

pub(super) async fn call_store(store: &TestStore, request: TemplateCall, now: Time) -> TemplateAnswer {
    match request {
        TemplateCall::Create(template, call) => {
            TemplateAnswer::Create(store.create_template(*template, call).await.unwrap())
        }
        TemplateCall::AddVersion(team, id, version) => {
            TemplateAnswer::AddVersion(store.add_template_version(team, id, version, now).await.unwrap())
        }
        TemplateCall::Remove(team, id) => TemplateAnswer::Template(store.remove_template(team, id, now).await.unwrap()),
        TemplateCall::RemoveVersion(team, id, version) => {
            TemplateAnswer::Template(store.remove_template_version(team, id, version, now).await.unwrap())
        }
        TemplateCall::Read(team, key, version) => {
            TemplateAnswer::Template(store.template(team, key, version).await.unwrap())
        }
        TemplateCall::List(team, before, limit) => {
            TemplateAnswer::List(store.templates(team, before, limit).await.unwrap())
        }
    }
}

fn random_source(wording: u8) -> TemplateSource {
    let variables =
        BTreeMap::from([("name".to_owned(), serde_json::from_value(json!({ "default": wording })).unwrap())]);
    TemplateSource { subject: format!("Subject {wording}"), text: Some("{{ name }}".into()), html: None, variables }
}

/// The ids of all templates that were created so far, in order. Removed ones are among them.
#[derive(Default)]
pub(super) struct TemplateState(Vec<Uuid>);

impl TemplateState {
    pub(super) fn record(&mut self, answer: &TemplateAnswer) {
        if let TemplateAnswer::Create(IdempotentResult::Done(CreateTemplateResult::Created(template))) = answer {
            self.0.push(template.id);
        }
    }

    pub(super) fn call_for(
        &self,
        team: TeamId,
        command: &TemplateCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> TemplateCall {
        let by_recency = |recency: u8| {
            let known = self.0.iter().rev().nth(usize::from(recency) % self.0.len().max(1));
            known.copied().unwrap_or_else(|| next_id(now))
        };
        match command {
            TemplateCommand::Create { name, wording, call } => {
                let (id, name, source) = (next_id(now), (*name).to_owned(), random_source(*wording));
                let template = Template { team, id, name, version: 1, created_at: now, updated_at: now, source };
                TemplateCall::Create(Box::new(template), call.map(operation))
            }
            TemplateCommand::AddVersion { template, seen, wording } => {
                TemplateCall::AddVersion(team, by_recency(*template), (*seen, random_source(*wording)))
            }
            TemplateCommand::Remove(template) => TemplateCall::Remove(team, by_recency(*template)),
            TemplateCommand::RemoveVersion(template, version) => {
                TemplateCall::RemoveVersion(team, by_recency(*template), *version)
            }
            TemplateCommand::Read { name, template, version } => {
                let key = name.map_or_else(|| TemplateKey::Id(by_recency(*template)), |n| TemplateKey::Name(n.into()));
                TemplateCall::Read(team, key, *version)
            }
            TemplateCommand::List { before, limit } => TemplateCall::List(team, before.map(by_recency), *limit),
        }
    }

    /// Everything that a team can read of its templates.
    pub(super) async fn view_all(&self, store: &TestStore, team: TeamId) -> Vec<(Template, Vec<(u32, Time)>)> {
        let mut rows = Vec::new();
        for template in store.templates(team, None, 1_000).await.unwrap().rows {
            let versions = store.template_versions(team, template.id).await.unwrap();
            rows.push((template, versions));
        }
        rows
    }
}
