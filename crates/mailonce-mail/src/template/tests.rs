use super::*;
use serde_json::json;
use std::{collections::BTreeMap, time::Instant};

fn source(subject: &str, text: Option<&str>, html: Option<&str>) -> TemplateSource {
    TemplateSource {
        subject: subject.into(),
        text: text.map(Into::into),
        html: html.map(Into::into),
        variables: BTreeMap::new(),
    }
}

fn map(json: serde_json::Value) -> Map<String, serde_json::Value> {
    json.as_object().cloned().unwrap()
}

/// Renders a plain text body.
fn text(template: &str, variables: serde_json::Value) -> Result<String, TemplateError> {
    render(&source("s", Some(template), None), &map(variables)).map(|rendered| rendered.text.unwrap())
}

fn text_error(template: &str, variables: serde_json::Value) -> TemplateError {
    text(template, variables).unwrap_err()
}

#[test]
fn a_template_is_filled_in() {
    let order = json!({ "name": "Ada", "items": [{ "name": "Tea", "price": 3.5, "count": 2 }, { "name": "Cup", "price": "4", "count": 1 }] });
    let template = "Hello {{ name|upper }}\n{% for item in items %}{{ loop.index }}. {{ item.name }} \
                    {{ (item.price|float * item.count|int)|fixed }}\n{% endfor %}{% if items|length > 1 %}Thanks{% else %}-{% endif %}";
    assert_eq!(text(template, order).unwrap(), "Hello ADA\n1. Tea 7.00\n2. Cup 4.00\nThanks");

    let filters = [
        ("{{ v|capitalize }}", "Ab c"),
        ("{{ v|truncate(2) }}", "aB…"),
        ("{{ v|replace('B', 'x') }}", "ax c"),
        ("{{ v|urlencode }}", "aB%20c"),
        ("{{ l|join(', ') }}", "1, x"),
        ("{{ missing|default('-') }}", "-"),
        ("{{ nothing|default('-') }}", "-"),
        ("{{ l|first }}{{ l|last }}", "1x"),
        ("{% for k, w in o|items %}{{ k }}={{ w }}{% endfor %}", "k=1"),
        ("{{ 'yes' if v is string and 1 in [1, 2] }}", "yes"),
        ("{% set n = 2 + 3 * 4 %}{{ n }}", "14"),
        ("{% raw %}{{ v }}{% endraw %}{# comment #}", "{{ v }}"),
    ];
    for (template, expected) in filters {
        let values = json!({ "v": "aB c", "l": [1, "x"], "o": { "k": 1 }, "nothing": null });
        assert_eq!(text(template, values), Ok(expected.to_owned()), "{template}");
    }
}

#[test]
fn a_variable_without_a_value_is_named_with_its_line() {
    for (template, variable) in [
        ("\n{{ name }}", "name"),
        ("\n{{ user.nme }}", "user.nme"),
        ("\n{{ name|upper }}", "name"),
        ("\n{{ name|fixed }}", "name"),
        ("\n{{ name|join(',') }}", "name"),
        ("\n{{ name|length }}", "name"),
        ("\n{% if name %}{% endif %}", "name"),
        ("\n{% for x in name %}{% endfor %}", "name"),
    ] {
        let error = text_error(template, json!({ "user": { "name": "x" } }));
        assert_eq!((error.line, error.variable.as_deref()), (Some(2), Some(variable)), "{template}: {error:?}");
    }
}

#[test]
fn defaults_stand_in_for_missing_variables() {
    let mut template = source("{{ greeting }}", Some("{{ greeting }} {{ name }}"), None);
    template.variables = serde_json::from_value(json!({ "greeting": { "default": "Hello" }, "name": {} })).unwrap();
    let rendered = render(&template, &map(json!({ "name": "Ada" }))).unwrap();
    assert_eq!((rendered.subject.as_str(), rendered.text.as_deref()), ("Hello", Some("Hello Ada")));
    let rendered = render(&template, &map(json!({ "name": "Ada", "greeting": "Hi" }))).unwrap();
    assert_eq!(rendered.subject, "Hi");
    assert_eq!(render(&template, &Map::new()).unwrap_err().variable.as_deref(), Some("name"));
}

#[test]
fn only_html_is_escaped() {
    let template = source("{{ v }}", Some("{{ v }}"), Some("<p>{{ v }}</p>{{ h|safe }}"));
    let rendered = render(&template, &map(json!({ "v": "<b>&\"'", "h": "<i>x</i>" }))).unwrap();
    assert_eq!(rendered.subject, "<b>&\"'");
    assert_eq!(rendered.text.as_deref(), Some("<b>&\"'"));
    assert_eq!(rendered.html.as_deref(), Some("<p>&lt;b&gt;&amp;&quot;&#x27;</p><i>x</i>"));
}

#[test]
fn the_text_is_derived_from_the_html() {
    let html = "<style>p{}</style><h1>Hello {{ name }}</h1><p>One<br>two</p><ul><li>a</li></ul>";
    let rendered = render(&source("s", None, Some(html)), &map(json!({ "name": "<Ada>" }))).unwrap();
    let text = rendered.text.unwrap();
    let link = "<p><a href=\"https://example.com/confirm?id={{ id }}\">Confirm</a></p>";
    let linked = render(&source("s", None, Some(link)), &map(json!({ "id": "7" }))).unwrap();
    assert_eq!(linked.text.as_deref(), Some("Confirm\n\nConfirm: https://example.com/confirm?id=7"));
    assert!(text.contains("Hello <Ada>") && text.contains("two") && !text.contains("p{}"), "{text}");
}

#[test]
fn an_error_far_to_the_right_is_an_error_and_no_panic() {
    for broken in ["{% raw %}", "{%\u{95}", "{{ 'x", "{{ x"] {
        let line = format!("{}{broken}", "x".repeat(70_000));
        let error = text_error(&line, serde_json::json!({}));
        assert!(error.line == Some(1) && !error.message.is_empty(), "{broken}: {error:?}");
    }
}

#[test]
fn a_subject_stays_one_line() {
    let template = source("Order {{ id }}", Some("x"), None);
    for break_ in ["1\r\nBcc: eve@example.com", "1\n", "1\r", "1\u{0}", "1\u{85}"] {
        let error = render(&template, &map(json!({ "a": "b", "id": break_ }))).unwrap_err();
        assert_eq!((error.part, error.variable.as_deref()), (TemplatePart::Subject, Some("id")), "{break_:?}");
    }
}

#[test]
fn nothing_is_loaded_called_captured_or_joined() {
    for template in [
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% import 'x' as y %}",
        "{% block a %}{% endblock %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% call x() %}{% endcall %}",
        "{% set a %}x{% endset %}",
        "{% filter upper %}x{% endfilter %}",
        "{% with a = 1 %}{% endwith %}",
        "{% autoescape false %}{% endautoescape %}",
        "{% do range(3) %}",
        "{% for a in b recursive %}{{ loop(a) }}{% endfor %}",
        "{{ range(3) }}",
        "{{ v.upper() }}",
        "{{ v ~ v }}",
        "{{ v + v }}",
        "{{ v * 3 }}",
        "{{ 2 ** 3 }}",
        "{{ [v, v] }}",
        "{{ {'a': v} }}",
        "{{ v[1:] }}",
        "{{ v|tojson }}",
        "{{ v|map('upper') }}",
        "{{ v is filter }}",
        "{{ v",
        "{% if v %}",
        "{% endif %}",
    ] {
        let errors = check(&source("s", Some(&format!("a\n{template}")), None)).unwrap_err();
        assert_eq!((errors[0].part, errors[0].line), (TemplatePart::Text, Some(2)), "{template}: {errors:?}");
        assert_eq!(text_error(&format!("a\n{template}"), json!({ "v": "x" })), errors[0], "{template}");
    }
}

#[test]
fn values_that_no_reader_wants_are_refused() {
    for (template, variables) in
        [("{{ v }}", json!({ "v": null })), ("{{ v }}", json!({ "v": [1] })), ("{{ v }}", json!({ "v": { "a": 1 } }))]
    {
        assert!(text_error(template, variables).message.contains("cannot be printed"), "{template}");
    }
}

#[test]
fn hostile_templates_end_fast() {
    let doubling = "{% set x = x|replace('x', 'xx') %}".repeat(200);
    let nested_loops = "{% for a in l %}".repeat(40) + &"{% endfor %}".repeat(40);
    let printed = "{% for a in l %}{% for b in l %}{{ big }}{% endfor %}{% endfor %}";
    let filtered =
        "{% for a in l %}{% for b in l %}{% if big|upper|lower|length > 1 %}{% endif %}{% endfor %}{% endfor %}";
    let searched = "{% for a in l %}{% for b in l %}{% if 'y' in big %}{% endif %}{% endfor %}{% endfor %}";
    let deep = |open: &str, close: &str, count: usize| open.repeat(count) + "1" + &close.repeat(count);
    let cases = [
        "{{ \"x\" * 10**9 }}".to_owned(),
        "{{ 10**1000000000 }}".to_owned(),
        "{{ big|replace('', big) }}".to_owned(),
        "{{ l|join(big) }}".to_owned(),
        doubling,
        nested_loops,
        printed.to_owned(),
        filtered.to_owned(),
        searched.to_owned(),
        format!("{{{{ {} }}}}", deep("(", ")", 100_000)),
        format!("{{{{ {} }}}}", deep("[", "]", 100_000)),
        format!("{{{{ x{} }}}}", ".a".repeat(120_000)),
        format!("{{{{ x{} }}}}", "|e".repeat(120_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(120_000)),
        format!("{{{{ {}x }}}}", "not ".repeat(60_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(200_000)),
        format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(20_000)),
        deep("{% if x %}", "{% endif %}", 12_000),
        (0..2_000).map(|n| format!("{{% set a{n} = big|e %}}")).collect::<Vec<_>>().concat(),
        (0..2_000).map(|n| format!("{{% set a{n} = big|safe %}}")).collect::<Vec<_>>().concat(),
        "{{ x }}".repeat(36_000),
    ];
    let variables = json!({ "x": "x", "big": "x".repeat(200_000), "l": (0..500).collect::<Vec<_>>() });
    for template in cases {
        let started = Instant::now();
        let result = text(&template, variables.clone());
        let shown: String = template.chars().take(60).collect();
        assert!(result.is_err(), "{shown}");
        assert!(started.elapsed().as_secs() < 5, "{shown} took {:?}", started.elapsed());
    }
}

/// What a template with long lists, maps and texts may take.
#[test]
fn comparisons_of_long_values_are_bounded() {
    let numbers: Vec<u32> = vec![7; 100_000];
    let map: Map<String, serde_json::Value> = (0..20_000).map(|n| (format!("k{n}"), json!(n))).collect();
    let variables = json!({
        "l": (0..500).collect::<Vec<_>>(), "list": numbers.clone(), "other": numbers, "map": map.clone(), "same": map,
        "long": "a".repeat(250_000), "needle": format!("{}b{}", "a".repeat(60_000), "a".repeat(60_000)),
        "twin": "a".repeat(250_000),
    });
    let twice = |inner: &str| format!("{{% for a in l %}}{{% for b in l %}}{inner}{{% endfor %}}{{% endfor %}}");
    for condition in ["8 in list", "list == other", "list < other", "map == same", "needle in long", "long == twin"] {
        let template = twice(&format!("{{% if {condition} %}}{{% endif %}}"));
        let started = Instant::now();
        assert!(text(&template, variables.clone()).is_err(), "{condition}");
        assert!(started.elapsed().as_secs() < 20, "{condition} took {:?}", started.elapsed());
    }
    // What a mail needs stays possible: a table of 1,000 rows with a condition in each, beside a long text.
    let rows: Vec<_> = (0..1_000).map(|n| json!({ "name": format!("Row {n}"), "state": "open" })).collect();
    let variables = json!({ "rows": rows, "states": ["open", "done"], "note": "x".repeat(60_000) });
    let table = "{{ note }}{% for row in rows %}{% if row.state in states and row.name != note %}{{ row.name }}{% endif %}{% endfor %}";
    assert!(text(table, variables).unwrap().ends_with("Row 999"));
}

#[test]
fn used_variables_are_found() {
    let template = source(
        "{{ order.id }}",
        Some("{% for item in items %}{{ item.name }}{{ loop.index }}{% endfor %}{% set local = 1 %}{{ local }}"),
        Some("{{ footer|default('') }}"),
    );
    let names: Vec<String> = check(&template).unwrap().into_iter().collect();
    assert_eq!(names, ["footer", "items", "order"]);
}
