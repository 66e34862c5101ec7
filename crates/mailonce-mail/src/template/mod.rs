//! Templates: compiles and renders the wording of an email.
//!
//! Templates come from callers, so rendering is bounded in time and memory: [`syntax`] allows only what cannot grow
//! without limit, every instruction costs fuel, every text that a filter makes is measured, what comparisons read is
//! bounded ([`values`]), and the output has a limit.
//! Nothing is loaded: a template cannot name another one.

mod filters;
mod syntax;
mod values;

use mailonce_core::outbound::template::TemplateSource;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, value::ValueKind};
use serde_json::Map;
use std::{collections::BTreeSet, io, sync::Arc};

use crate::html::{Anchor, HtmlPage, render as render_page};
use filters::FilterBudget;
use values::ReadCounter;

/// Instructions that one part may run. A table with 1,000 rows of ten cells takes about 60,000.
const FUEL: u64 = 100_000;
/// Bytes that one part may render to.
pub const MAX_RENDERED_BYTES: usize = 1024 * 1024;

/// Links that are listed below a text that is derived from HTML.
const MAX_LISTED_LINKS: usize = 50;

/// A part of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// The subject.
    Subject,
    /// The plain text body.
    Text,
    /// The HTML body.
    Html,
}

impl TemplatePart {
    /// The field of the part in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Text => "text",
            Self::Html => "html",
        }
    }
}

/// Why a template cannot be compiled or rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// The part with the error.
    pub part: TemplatePart,
    /// The line in that part, from 1.
    pub line: Option<usize>,
    /// The variable, such as `user.name`.
    pub variable: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl TemplateError {
    fn of_syntax(part: TemplatePart, line: usize, message: String) -> Self {
        Self { part, line: Some(line), variable: None, message }
    }

    fn of_engine(part: TemplatePart, error: &Error) -> Self {
        let detail = error.detail().unwrap_or_default();
        let variable = undefined_variable(detail);
        let message = match (error.kind(), &variable) {
            (_, Some(variable)) => format!("the variable `{variable}` has no value"),
            (ErrorKind::OutOfFuel, _) => too_many_steps(),
            (ErrorKind::WriteFailure, _) => too_long(),
            (kind, _) if detail.is_empty() => kind.to_string(),
            _ => detail.to_owned(),
        };
        Self { part, line: error.line(), variable, message }
    }
}

fn too_many_steps() -> String {
    format!("it takes more than {FUEL} steps, or compares too long lists or texts too often; loop over fewer items")
}

fn too_long() -> String {
    format!("it renders to more than {} KiB", MAX_RENDERED_BYTES / 1024)
}

/// The variable in the engine's message, which reads "`user.name` is undefined".
fn undefined_variable(detail: &str) -> Option<String> {
    let (before, _) = detail.split_once("` is undefined")?;
    before.rsplit_once('`').map(|(_, name)| name.to_owned())
}

/// What a template wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedTemplate {
    /// The subject, one line.
    pub subject: String,
    /// The plain text body. Derived from the HTML if the template has none.
    pub text: Option<String>,
    /// The HTML body.
    pub html: Option<String>,
}

/// Checks that every part compiles. Returns the variables that it uses. All errors are returned, one for each part.
pub fn check(source: &TemplateSource) -> Result<BTreeSet<String>, Vec<TemplateError>> {
    let (mut used, mut errors) = (BTreeSet::new(), Vec::new());
    for (part, text) in parts(source) {
        match used_variables(part, text) {
            Ok(names) => used.extend(names),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(used) } else { Err(errors) }
}

fn used_variables(part: TemplatePart, text: &str) -> Result<BTreeSet<String>, TemplateError> {
    syntax::check(part, text)?;
    let env = environment(part, &Arc::default());
    let template = env.template_from_str(text).map_err(|error| TemplateError::of_engine(part, &error))?;
    Ok(template.undeclared_variables(false).into_iter().collect())
}

fn parts(source: &TemplateSource) -> impl Iterator<Item = (TemplatePart, &str)> {
    let subject = Some((TemplatePart::Subject, source.subject.as_str()));
    let text = source.text.as_deref().map(|text| (TemplatePart::Text, text));
    let html = source.html.as_deref().map(|html| (TemplatePart::Html, html));
    [subject, text, html].into_iter().flatten()
}

/// Renders a template with these variables. A variable without a value is an error, unless the template declares a
/// default for it.
pub fn render(
    source: &TemplateSource,
    variables: &Map<String, serde_json::Value>,
) -> Result<RenderedTemplate, TemplateError> {
    let defaults = source.variables.iter().filter(|(name, _)| !variables.contains_key(*name));
    let defaults = defaults.filter_map(|(name, variable)| Some((name, variable.default.as_ref()?)));
    let (reads, mut longest) = (Arc::new(ReadCounter::default()), 0);
    let counted = |(name, value): (&String, &serde_json::Value)| {
        longest = longest.max(values::longest_text(value));
        (name.clone(), values::counted(value, &reads))
    };
    let root = Value::from_pairs(defaults.chain(variables).map(counted).collect::<Vec<_>>());
    let inputs = RenderInputs { root, reads, longest };
    let part = |part, text: &str| render_part(part, text, &inputs);
    let html = source.html.as_deref().map(|html| part(TemplatePart::Html, html)).transpose()?;
    let text = match (&source.text, &html) {
        (Some(text), _) => Some(part(TemplatePart::Text, text)?),
        (None, Some(html)) => Some(text_of_html(html)),
        (None, None) => None,
    };
    let subject = part(TemplatePart::Subject, &source.subject)?;
    check_subject(&subject, variables)?;
    Ok(RenderedTemplate { subject, text, html })
}

/// The text of an HTML body, followed by the links that a reader of the text could not follow otherwise.
fn text_of_html(html: &str) -> String {
    let page = HtmlPage::parse(html);
    let mut text = render_page(&page);
    let is_lost = |anchor: &&Anchor| {
        let is_web = ["https://", "http://"].iter().any(|scheme| anchor.href.starts_with(scheme));
        is_web && !anchor.is_hidden && !text.contains(&anchor.href)
    };
    let lost: Vec<String> = page.anchors.iter().filter(is_lost).take(MAX_LISTED_LINKS).map(link_line).collect();
    if !lost.is_empty() {
        text = format!("{text}\n\n{}", lost.join("\n"));
    }
    text
}

fn link_line(anchor: &Anchor) -> String {
    if anchor.text.is_empty() { anchor.href.clone() } else { format!("{}: {}", anchor.text, anchor.href) }
}

/// A line break in the subject would add a header to the mail.
fn check_subject(subject: &str, variables: &Map<String, serde_json::Value>) -> Result<(), TemplateError> {
    if !subject.chars().any(char::is_control) {
        return Ok(());
    }
    let has_control = |value: &serde_json::Value| value.as_str().is_some_and(|text| text.chars().any(char::is_control));
    let variable = variables.iter().find(|(_, value)| has_control(value)).map(|(name, _)| name.clone());
    Err(TemplateError {
        part: TemplatePart::Subject,
        line: Some(1),
        variable,
        message: "it renders to more than one line, or to a control character".into(),
    })
}

/// The variables of a render.
struct RenderInputs {
    root: Value,
    reads: Arc<ReadCounter>,
    /// The length of the longest text among them.
    longest: usize,
}

fn render_part(part: TemplatePart, text: &str, inputs: &RenderInputs) -> Result<String, TemplateError> {
    // Stored templates were checked, but perhaps by an older release with other rules.
    syntax::check(part, text)?;
    // A constant in the template is a text, too.
    let longest = inputs.longest.max(longest_constant(text));
    let filter_budget = Arc::new(FilterBudget::new(values::max_filtered_text(longest)));
    let mut env = environment(part, &filter_budget);
    env.set_fuel(Some(values::fuel(longest)));
    let mut output = BoundedOutput::default();
    let rendered = env
        .template_from_str(text)
        .and_then(|template| template.render_captured_to(inputs.root.clone(), &mut output).map(drop));
    if inputs.reads.is_exceeded() {
        return Err(TemplateError { part, line: None, variable: None, message: too_many_steps() });
    }
    rendered.map_err(|error| TemplateError::of_engine(part, &error))?;
    String::from_utf8(output.0)
        .map_err(|_never| TemplateError::of_syntax(part, 1, "it renders to invalid UTF-8".into()))
}

/// The length of the longest text in quotes, at most.
fn longest_constant(text: &str) -> usize {
    text.split(['"', '\'']).map(str::len).max().unwrap_or_default().min(text.len())
}

/// The engine with only what a template of this part may use.
fn environment<'a>(part: TemplatePart, filter_budget: &Arc<FilterBudget>) -> Environment<'a> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_debug(true); // Errors name the line and the variable.
    env.set_fuel(Some(FUEL));
    let escape = if part == TemplatePart::Html { AutoEscape::Html } else { AutoEscape::None };
    env.set_auto_escape_callback(move |_| escape.clone());
    env.set_formatter(|out, state, value| match value.kind() {
        // The missing `else` of `{{ "a" if b }}`.
        ValueKind::Undefined => Ok(()),
        ValueKind::Bool | ValueKind::Number | ValueKind::String => minijinja::escape_formatter(out, state, value),
        ValueKind::None => Err(Error::new(ErrorKind::InvalidOperation, "a null cannot be printed; use `|default(…)`")),
        kind => {
            let message = format!("a {kind} cannot be printed; print its fields, or loop over it");
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
    });
    filters::register(&mut env, filter_budget);
    env
}

/// Output that ends with an error when it grows too long.
#[derive(Default)]
struct BoundedOutput(Vec<u8>);

impl io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_RENDERED_BYTES {
            return Err(io::Error::other("too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
