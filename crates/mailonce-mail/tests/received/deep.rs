//! Pages and mails that nest or repeat a construct until code that recurses overflows its stack.

use mailonce_mail::{
    html::{HtmlPage, render},
    parse,
};
use std::thread;

/// A quarter of the stack of the threads that parse mail.
const STACK_BYTES: usize = 512 * 1024;
/// Repetitions, as many as fit into a page or a style sheet.
const MANY: usize = 27_000;

fn style(css: &str) -> String {
    format!("<style>{css}</style><p>text</p>")
}

/// Negations of a media query.
fn media_queries() -> Vec<String> {
    let nots = "not ".repeat(MANY);
    vec![
        style(&format!("@media all and {nots}(color){{p{{color:red}}}}")),
        style(&format!("@media all and {}(color){{p{{color:red}}}}", "not/**/".repeat(MANY))),
        style(&format!("@media {}(color){}{{p{{color:red}}}}", "(not ".repeat(MANY), ")".repeat(MANY))),
        style(&format!("@import 'data:text/css,p{{color:red}}' all and {nots}screen;")),
        format!("<style media='all and {}(color)'>p{{color:red}}</style><p>text</p>", "not&#32;".repeat(MANY)),
        format!("<link rel=stylesheet media='all and {nots}' href='data:text/css,p{{color:red}}'><p>text</p>"),
    ]
}

fn selectors() -> Vec<String> {
    let paragraphs = "<p>x".repeat(9_000);
    let nested = |rule: &str, count: usize| style(&format!("{}{}", rule.repeat(count), "}".repeat(count)));
    vec![
        format!("<style>{}p{{color:red}}</style>{paragraphs}", "p+".repeat(5_000)),
        format!("<style>{}p{{color:red}}</style>{paragraphs}", "p~".repeat(5_000)),
        format!("<style>{}b{{color:red}}</style>{}x", "b>".repeat(500), "<b>".repeat(500)),
        style(&format!("{}p{}{{color:red}}", ":not(:is(".repeat(MANY), "))".repeat(MANY))),
        style(&format!("{}p{}{{color:red}}", ":not(:is(".repeat(30), "))".repeat(30))),
        nested(&format!("{}&{}{{color:red;", ":is(".repeat(59), ")".repeat(59)), 12),
        nested(&format!("{}p+&{{color:red;", "p+".repeat(100)), 12) + &paragraphs,
        nested("p{color:red;", MANY),
        nested("@layer a{", MANY),
        nested("@media all{", MANY),
        nested("@supports (color:red){", MANY),
    ]
}

fn values() -> Vec<String> {
    let attribute = |value: &str| format!("<p style='{value}'>text");
    let functions = ["calc(", "(", "min(1px,", "var(--x,", "color-mix(in srgb,", "image-set(", "{", "["];
    let properties = ["width", "color", "background", "transform", "clip-path", "filter", "--a"];
    let mut pages = Vec::new();
    for function in functions {
        for property in properties {
            for count in [70, 2_000, MANY] {
                pages.push(attribute(&format!("{property}:{}1px{}", function.repeat(count), ")".repeat(count))));
            }
        }
    }
    let (open, close) = ("(".repeat(74), ")".repeat(74));
    let chain = (0..20).map(|n| format!("--a{n}:{open}var(--a{}){close};", n + 1)).collect::<Vec<_>>().concat();
    pages.push(attribute(&format!("{chain}width:calc{open}var(--a0){close}")));
    pages.push(attribute(&format!(
        "{}width:var(--a0)",
        (0..2_000).map(|n| format!("--a{n}:var(--a{});", n + 1)).collect::<Vec<_>>().concat()
    )));
    pages
}

fn trees() -> Vec<String> {
    let elements =
        ["div", "b", "blockquote", "ul><li", "ol><li", "table><tr><td", "svg><g", "template", "pre", "ruby", "h1"];
    let mut pages: Vec<String> = elements.iter().map(|name| format!("<{name}>").repeat(MANY) + "x").collect();
    pages.push(format!("<!--[if mso]>{}<![endif]-->", "<div><noscript>".repeat(MANY)));
    pages.push("<noscript>".repeat(MANY) + "x");
    pages
}

#[test]
fn no_page_overflows_a_small_stack() {
    let pages = [media_queries(), selectors(), values(), trees()].concat();
    let process = move || {
        for html in pages {
            let page = HtmlPage::parse(&html);
            render(&page);
            HtmlPage::parse_for_approval(&html);
            render(&HtmlPage::parse(&page.clean_html));
        }
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(process).unwrap().join().unwrap();
}

#[test]
fn no_mail_overflows_a_small_stack() {
    let mails = super::hostile::mails();
    let process = move || mails.iter().for_each(|(_, raw)| drop(parse::parse(raw)));
    thread::Builder::new().stack_size(STACK_BYTES).spawn(process).unwrap().join().unwrap();
}
