//! Parsing untrusted pages.

use super::*;

#[track_caller]
fn check(html: &str, text: &str, hidden: usize) {
    let page = HtmlPage::parse(html);
    assert_eq!((page.text.as_str(), page.hidden.chars), (text, hidden), "{html}");
}

#[test]
fn inline_tags_vanish_and_blocks_are_lines() {
    check("<p>Your <b>code</b></p><div>77<span>41</span>02</div>", "Your code\n\n774102", 0);
    check("<table><tr><td>1</td><td>2</td></tr><tr><td>3</td></tr></table>", "1 2\n\n3", 0);
    check("a<br>b<p>c<p>d", "a\nb\nc\n\nd", 0);
    check("x &amp; y &#x41;&#66; &unknown; &#99999999; &copy", "x & y AB &unknown; \u{fffd} ©", 0);
    check("<script>var a = '<b>1234</b>'</script><style>.a{color:#202123}</style><title>no</title>ok", "ok", 0);
}

#[test]
fn hidden_text_is_not_text() {
    for hides in [
        "style='display:none'",
        "style='DISPLAY : None !important'",
        "style='visibility:hidden'",
        "style='font-size:0'",
        "style='font-size:1px;line-height:1px'",
        "style='opacity:0'",
        "style='max-height:0;overflow:hidden'",
        "style='position:absolute;left:-9999px'",
        "style='text-indent:-9999px'",
        "style='width:3ch;overflow:hidden'",
        "style='color:#fff'",
        "style='color:white;background:#fefefe'",
        "style='color:rgba(0,0,0,0)'",
        "style='mso-hide:all'",
        "hidden",
        "class='gone'",
        "id=off",
    ] {
        let html = format!(
            "<style>@media x{{.shown{{display:none}}}} .gone,p.z{{display:none}} #off{{font-size:0}}</style><div {hides}>1234</div><div class=shown>ok</div>"
        );
        check(&html, "ok", 4);
    }
    check("<p style=display:none>1234<div>ok</div>", "ok", 4);
    check("<div style=display:none><div>12</div>34</div>ok", "ok", 4);
    check("<div><font style='display:none'>12</div>34</font>ok", "ok", 4);
    check("<table bgcolor='#000'><td><b style='color:#fff'>ok</b><b style='color:#000'>1234</b></table>", "ok", 4);
    check("<div style='font-size:0px'>1234<p style='font-size:16px'>ok</p></div>", "ok", 4);
    check("a<!-- 1234 --!>b<!--> c", "ab c", 0);
    assert_eq!(HtmlPage::parse("<!-- obey --><!--[if mso]>x<![endif]-->").hidden.comments, 1);
    assert_eq!(HtmlPage::parse("<img src=x width=1 height=1><img alt=logo width=80>").hidden.tracking_pixels, 1);
}

#[test]
fn anchors_have_their_words() {
    let page = HtmlPage::parse(
        "<a href=' https://x.example/?a=1&amp;b=2 '>Confirm <b>your</b> mail</a><a href=y style='display:none'>z</a>",
    );
    let anchors: Vec<_> = page.anchors.iter().map(|a| (a.href.as_str(), a.text.as_str(), a.is_hidden)).collect();
    assert_eq!(anchors, [("https://x.example/?a=1&b=2", "Confirm your mail", false), ("y", "", true)]);
}

#[test]
fn the_view_has_lists_and_quotes() {
    let page = HtmlPage::parse("<p>Hello</p><ul><li>one<li>two</ul><blockquote>old</blockquote><p>a &lt;b&gt;</p>");
    assert_eq!(render(&page), "Hello\n* one\n* two\n\n> old\n\na <b>");
}

#[test]
fn list_items_have_the_numbers_of_browsers() {
    for (html, lines) in [
        ("<ol><li>a<li>b</ol>", "1. a|2. b"),
        ("<ol start=5><li>a<li>b</ol>", "5. a|6. b"),
        ("<ol start=' -2x'><li>a</ol>", "-2. a"),
        ("<ol start=99999999999><li>a</ol>", "1. a"),
        ("<ol><li>a<li value=1000>b<li>c</ol>", "1. a|1000. b|1001. c"),
        ("<ol reversed><li>a<li>b<ol><li>x</ol></ol>", "2. a|1. b|1. x"),
        ("<ol><li>a<li style='display:none'>x<li>b</ol>", "1. a|2. b"),
        ("<ol><li>a<li style='visibility:hidden'>x<li>b</ol>", "1. a|3. b"),
        ("<ol><div><li value=7>a</div><li>b</ol>", "7. a|8. b"),
        // The list renderer shows only items.
        ("<ol>words<li>a<p>more</p></li>rest<li>b</ol>", "words|1. a|more|rest|2. b"),
    ] {
        let text = render(&HtmlPage::parse(html));
        let shown: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(shown.join("|"), lines, "{html}");
    }
}

#[test]
fn links_are_relative_to_the_base() {
    let base = "<base target=_blank><base href='https://evil.example/a/'><base href='https://other.example'>";
    for (href, target) in [
        ("https://good.example/x", "https://good.example/x"),
        ("https:good.example/login", "https://evil.example/a/good.example/login"),
        ("good.example/login", "https://evil.example/a/good.example/login"),
        ("/login", "https://evil.example/login"),
        ("//good.example", "https://good.example/"),
        ("mailto:a@good.example", "mailto:a@good.example"),
    ] {
        let page = HtmlPage::parse(&format!("{base}<a href='{href}'>x</a>"));
        assert_eq!(page.anchors[0].href, target, "{href}");
    }
    assert_eq!(HtmlPage::parse("<base href='/x'><a href=login>x</a>").anchors[0].href, "login");
}

#[test]
fn a_link_is_seen_by_its_image_or_its_words() {
    let img = "<img src='https://x.example/i.png' width=80>";
    for (html, hidden) in [
        (format!("<a href=x style='color:#fff'>{img}</a>"), false),
        (format!("<div style='font-size:0'><a href=x>{img}</a></div>"), false),
        ("<a href=x style='font-size:0'><b style='font-size:16px'>Pay</b></a>".into(), false),
        (format!("{img}<map name=m><area href=x alt='Pay here'></map>"), false),
        (format!("<a href=x style='display:none'>{img}</a>"), true),
        ("<a href=x style='color:#fff'>Pay</a>".into(), true),
        ("<a href=x style='color:#fff'><img width=1 height=1></a>".into(), true),
    ] {
        assert_eq!(HtmlPage::parse(&html).anchors[0].is_hidden, hidden, "{html}");
    }
}

#[test]
fn floods_end() {
    for html in [
        "<div>".repeat(100_000),
        "<b>".repeat(100_000),
        format!("<a {}>", "x=y ".repeat(200_000)),
        format!("<a {}>", "a>=\"".repeat(100_000)),
        "<!--".repeat(100_000),
        "</".repeat(100_000),
        "<table><tr><td>".repeat(30_000),
        "<p><a href=x>".repeat(30_000),
        "&#".repeat(300_000),
        format!("{}{}", "<blockquote>".repeat(190), "x<br>".repeat(19_000)),
        format!(
            "<style>{}</style>{}",
            ".a{color:red}".repeat(1000),
            format!("<p class='{}'>", "b ".repeat(300)).repeat(1000)
        ),
        format!("<style>{}</style>{}", ".a,".repeat(10_000), "<p class=a>".repeat(10_000)),
    ] {
        let page = HtmlPage::parse(&html);
        assert!(page.anchors.len() <= MAX_ANCHORS);
        assert!(render(&page).len() <= MAX_HTML_BYTES);
    }
}

#[test]
fn excessive_css_ends_in_time_and_hides_the_text() {
    let elements = "<p class='a b c'>1234".repeat(5_000);
    let many = |rule: &str, times: usize| format!("<style>{}</style>{elements}", rule.repeat(times));
    for html in [
        many(".a{color:red}", 6_000),
        many(":has(.c){color:red}", 4_000),
        many("b~p~p~p{color:red}", 50),
        many("* * * * * *{color:red}", 2_000),
        many("a{", 1_000),
        many(":is(", 1_000),
        many(":not(:is(p,p,p,p)>p:nth-last-child(2n of p)){color:red}", 300),
        format!("<style>{}</style>{elements}", ".a{b:c}".repeat(60_000)),
        format!("{}{}", elements.repeat(5), "<style>p{display:none}</style>"),
    ] {
        let page = HtmlPage::parse(&html);
        assert!(page.text.is_empty() && page.is_truncated, "{} … {}", &html[..60], page.text.len());
    }
}

/// A page that hides a word with the last of `count` custom properties.
fn hidden_by_the_last_of(count: usize) -> String {
    let names: Vec<String> =
        (0..count).map(|n| format!("--a{n}:{};", if n + 1 == count { "none" } else { "block" })).collect();
    format!("<style>*{{{}}} p{{display:var(--a{})}}</style><p>1234</p>", names.concat(), count - 1)
}

#[test]
fn many_custom_properties_give_the_same_page_each_time() {
    for (count, is_cut) in [(600, false), (2_000, false), (2_001, true), (8_000, true)] {
        let html = hidden_by_the_last_of(count);
        for _ in 0..20 {
            let page = HtmlPage::parse(&html);
            assert_eq!((page.text.as_str(), page.hidden.chars, page.is_truncated), ("", 4, is_cut), "{count}");
        }
    }
}

#[test]
fn floods_of_declarations_end_and_hide() {
    let elements = "<p>1234\n".repeat(15_000);
    let custom = (0..2_000).map(|n| format!("--a{n}:red;")).collect::<Vec<_>>().concat();
    let fonts =
        (0..2_000).map(|n| format!("@font-face{{font-family:f{n};src:url(data:,)}}")).collect::<Vec<_>>().concat();
    let animations = (0..25).map(|n| format!("@keyframes k{n}{{to{{opacity:0}}}}")).collect::<Vec<_>>().concat();
    let names: Vec<String> = (0..25).map(|n| format!("k{n}")).collect();
    for html in [
        format!("<style>*{{{custom}color:var(--a1999)}}</style>{elements}"),
        format!("<style>{fonts}*{{font-family:{}b}}</style>{elements}", "a,".repeat(1_000)),
        format!("<style>@keyframes k{{{}to{{{}}}}}</style>{elements}", "to,".repeat(200), "color:red;".repeat(21_000)),
        format!("<style>{animations}p{{animation-name:{}}}</style>{elements}", names.join(",")),
        format!("<style>@layer {}b;</style>{elements}", "a,".repeat(300)),
    ] {
        let page = HtmlPage::parse(&html);
        assert!(page.text.is_empty() && page.is_truncated, "{} … {}", &html[..60], page.text.len());
    }
}

#[test]
fn deep_and_wide_values_end() {
    let numbered = |count: usize, text: fn(usize) -> String| (0..count).map(text).collect::<Vec<_>>().concat();
    let variables = numbered(60, |n| format!("--v{}:var(--v{n}) var(--v{n});", n + 1));
    for html in [
        format!("<div style='{variables}display:var(--v60)'>1234</div>ok"),
        "<div style='--a:var(--b);--b:var(--a);opacity:0'>1234</div>ok".to_owned(),
        format!("<div style='width:{}1px{};display:none'>1234</div>ok", "calc(".repeat(9_000), ")".repeat(9_000)),
        format!("<div style='display:/*{}*/none'>1234</div>ok", "x".repeat(6_000)),
        format!("<div style='{}display:none'>1234</div>ok", "color:red;".repeat(7_000)),
        format!("<div {} hidden>1234</div>ok", numbered(4_000, |n| format!("a{n} "))),
    ] {
        let page = HtmlPage::parse(&html);
        assert_eq!(page.text, "ok", "{}", &html[..60]);
    }
    let attributes = numbered(120_000, |n| format!("a{n} "));
    assert!(HtmlPage::parse(&format!("<p {attributes}>1234")).is_truncated);
}

#[test]
fn many_attributes_of_one_element_cut_the_page() {
    let numbered =
        |from: usize, count: usize| (from..from + count).map(|n| format!("a{n} ")).collect::<Vec<_>>().concat();
    let bodies = (0..900).map(|n| format!("<body {}>", numbered(90 * n, 90))).collect::<Vec<_>>().concat();
    let reopened = format!("<p><b {}>{}", numbered(0, 700), "<p>x".repeat(19_000));
    let styled = format!("<style>[z]~p{{display:none}}</style><i {}z></i><p>1234", numbered(0, 1_100));
    for html in [format!("{bodies}1234"), styled] {
        let page = HtmlPage::parse(&html);
        assert_eq!((page.text.as_str(), page.is_truncated), ("", true), "{}", &html[..60]);
    }
    let tree = tree::HtmlTree::parse(&reopened);
    let attributes = |id| match &tree.node(id).content {
        tree::NodeContent::Element(_, attributes) => attributes.len(),
        _ => 0,
    };
    let total: usize = (0..tree.len()).map(attributes).sum();
    assert!(tree.is_truncated && total < 1_000_000, "{total}");
}

#[test]
fn siblings_are_walked_once() {
    let html = format!("<table>{}{}", "<!---->".repeat(56_000), "<caption>x".repeat(19_000));
    let start = std::time::Instant::now();
    HtmlPage::parse_for_approval(&html);
    // A generous limit for busy machines. A walk for each caption takes longer on idle ones.
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[test]
fn text_for_screen_readers_alone_is_kept_and_counted() {
    let page = HtmlPage::parse("<p>ok <span aria-hidden=true>1234</span></p>");
    assert_eq!((page.text.as_str(), page.hidden.aria_hidden_chars, page.hidden.chars), ("ok 1234", 4, 0));
}

#[test]
fn a_selector_is_searched_once_for_each_element() {
    let value = "a".repeat(6_000);
    let elements = format!("<p x={value}>x</p>").repeat(15);
    let steps = |rules: &str| visibility::count_steps(&format!("<style>{rules}</style>{elements}"));
    let nested = format!("[x*=\"{}b\" i]{{{}}}", &value[..3_000], "&{color:red}".repeat(1_000));
    let plain = steps(&"p{color:red}".repeat(1_000));
    assert!(steps(&nested) < plain + 15 * 1_000 * 10, "{}", steps(&nested));
    let page = HtmlPage::parse(&format!("<style>{nested}</style>{elements}"));
    assert!(page.text.starts_with('x') && !page.is_truncated);
}

#[test]
fn searches_in_attributes_find_the_same_as_browsers() {
    let long = "z".repeat(200);
    for (selector, hides) in [
        ("[x*=\"Bc\"]", true),
        ("[x*=\"bc\"]", false),
        ("[x*=\"bC\" i]", true),
        ("[x*=\"bc\" i][x*=\"zz\"]", true),
        ("[x*=\"bd\" i]", false),
        ("[x*=\"\"]", false),
        ("[y*=\"Bc\"]", false),
    ] {
        let html = format!("<style>{selector}{{&{{color:red}}&{{display:none}}}}</style><p x='aBcd{long}'>1234</p>ok");
        assert_eq!(HtmlPage::parse(&html).text, if hides { "ok" } else { "1234\nok" }, "{selector}");
    }
}

#[test]
fn the_cost_of_selectors_is_charged() {
    let numbered = |count: usize, text: fn(usize) -> String| (0..count).map(text).collect::<Vec<_>>().concat();
    let elements = "<b>x</b>".repeat(100);
    let attributes = format!("<p {}>x</p>", numbered(1_000, |n| format!("a{n} ")));
    let variables = numbered(1_000, |n| format!("--a{n}:var(--a{0}) var(--a{0});", n + 1));
    for (css, html, least) in [
        (format!(":is({}i){{color:red}}", "a,".repeat(4_000)), elements.clone(), 100 * 1_000),
        (
            format!(":not(*){{:is({}a){{:is({}a){{color:red}}}}}}", "&,".repeat(30), "&,".repeat(30)),
            elements,
            100 * 600,
        ),
        (format!(":lang({}x){{color:red}}", "aa,".repeat(4_000)), "<b lang=en>x</b>".repeat(100), 100 * 4_000),
        (numbered(500, |n| format!("[b{n}]{{color:red}}")), attributes.clone(), 500 * 250),
        (numbered(500, |n| format!("p#b{n}{{color:red}}p:link{{color:red}}")), attributes, 100),
        (format!("html{{{variables}--a1000:red}}p{{color:var(--a993)}}"), "<p>x".repeat(10), 10 * 255 * 100),
    ] {
        let steps = visibility::count_steps(&format!("<style>{css}</style>{html}"));
        assert!(steps >= least, "{}: {steps}", &css[..40]);
    }
}

#[test]
fn floods_of_selectors_end_and_hide() {
    let elements = "<b>1234</b>".repeat(5_000);
    for css in [
        format!(":is({}i){{color:red}}", "a,".repeat(100_000)),
        format!("{}b{{{}}}", "a,".repeat(5_000), "&{color:red}".repeat(1_000)),
        format!("{}b{{:is({}b){{color:red}}}}", "a,".repeat(5_000), "&,".repeat(1_000)),
        format!(":not(*){{:is({0}a){{:is({0}a){{:is({0}a){{color:red}}}}}}}}", "&,".repeat(1_000)),
        format!("b:lang({}x){{color:red}}", "aa,".repeat(60_000)),
    ] {
        let page = HtmlPage::parse(&format!("<style>{css}</style><html lang=en>{elements}"));
        assert!(page.text.is_empty() && page.is_truncated, "{} … {}", &css[..60], page.text.len());
    }
}

#[test]
fn deeply_nested_lists_keep_their_items_apart() {
    for (open, deep) in
        [("<ul><li>", " deep\n"), ("<ol><li>", " 1. deep\n"), ("<blockquote><ol start=7><li>", " 7. deep\n")]
    {
        let text = render(&HtmlPage::parse(&format!("{}deep</li><li>end", open.repeat(60))));
        assert!(text.contains(deep) && text.ends_with("end"), "{text}");
        assert!(text.lines().all(|line| line.len() < 200), "{text}");
    }
}

/// The renderer takes time for each character that it writes, also for those of an indentation.
#[test]
fn indentation_does_not_multiply_the_text() {
    let html = format!("{}{}", "<ul><li>".repeat(95), "<li>word".repeat(10_000));
    let text = render(&HtmlPage::parse(&html));
    assert!(text.lines().count() > 9_000);
    assert!(text.len() < 8 * html.len(), "{} bytes of {}", text.len(), html.len());
}

#[test]
fn two_evaluations_share_one_budget() {
    let rules = "p:not(.x):not(.y){color:red}".repeat(400);
    let page = |more: &str| HtmlPage::parse(&format!("<style>{more}{rules}</style>{}", "<p>1234".repeat(2_500)));
    assert!(!page("").is_truncated);
    assert!(page("@supports(x:y){p{color:red}}").is_truncated);
}

#[test]
fn a_preview_that_uses_up_its_budget_is_reported_as_truncated() {
    let rules = "p:not(.x):not(.y){color:red}".repeat(400);
    let page = |more: &str| format!("<style>{more}{rules}</style>{}", "<p>1234".repeat(2_500));
    assert!(!HtmlPage::parse_for_approval(&page("")).0.is_truncated);
    let for_paper = page("@media print{p{color:red}}");
    assert!(!HtmlPage::parse(&for_paper).is_truncated);
    assert!(HtmlPage::parse_for_approval(&for_paper).0.is_truncated, "evaluated for paper as well");
}

#[test]
fn every_limit_of_a_page_is_reported() {
    for (tag, limit) in
        [("<a href=x>y</a>", MAX_ANCHORS), ("<br>", MAX_TAGS), ("<div>", MAX_NESTING), ("x", MAX_HTML_BYTES)]
    {
        // The parser adds `html`, `head` and `body`.
        for (count, is_truncated) in [(limit - 3, false), (limit + 1, true)] {
            let html = tag.repeat(count);
            assert_eq!(HtmlPage::parse(&html).is_truncated, is_truncated, "{count} times {tag}");
            assert_eq!(HtmlPage::parse_for_approval(&html).0.is_truncated, is_truncated, "{count} times {tag}");
        }
    }
}

#[test]
fn the_colour_of_links_is_that_of_the_body() {
    check("<body link=white><div><a href=x>1234</a></div>ok", "ok", 4);
    check("<body link=red><div><a href=x>1234</a></div>ok", "1234\nok", 0);
}

#[test]
fn a_hidden_first_letter_hides_the_text() {
    for css in ["font-size:0", "color:#fff", "background:#000", "float:right", "margin-left:-30px", "opacity:0"] {
        check(&format!("<style>p::first-letter{{{css}}}</style><p>1234</p>ok"), "ok", 4);
        check(&format!("<style>p:first-letter{{{css}}}</style><p>1234</p>ok"), "ok", 4);
    }
    let drop_cap = "font-size:3em;float:left;color:#c00;margin:0 4px 0 0;line-height:1";
    check(&format!("<style>p::first-letter{{{drop_cap}}}</style><p>1234</p>ok"), "1234\nok", 0);
}

#[test]
fn style_sheets_in_broken_data_urls_apply() {
    for url in [
        "data:text/css,p{display:none}",
        "da&#9;ta:text/css,p{dis&#10;play:none}",
        " &#1;DATA:text/css,p{display:none}",
    ] {
        check(&format!("<link rel=stylesheet href='{url}'><p>1234</p>ok"), "ok", 4);
    }
}

#[test]
fn rules_that_browsers_ignore_are_ignored() {
    let import = "@import 'data:text/css,p{display:block!important}';";
    for css in [
        "@nest x{p{display:block!important}} p{display:none}",
        &format!("@layer a{{}} {import} p{{display:none}}"),
        &format!("@media all{{{import}}} p{{display:none}}"),
        &format!("b{{}} {import} p{{display:none}}"),
        "@unknown; @import 'data:text/css,p{display:none}';",
        "b:unknown{} @import 'data:text/css,p{display:none}';",
        "@layer a; @import 'data:text/css,p{display:none}';",
    ] {
        check(&format!("<style>{css}</style><p>1234</p>ok"), "ok", 4);
    }
    check("<style>@nest x{p{display:none}}</style><p>1234</p>ok", "1234\nok", 0);
    check("<style>b{} @import 'data:text/css,p{display:none}';</style><p>1234</p>ok", "1234\nok", 0);
}

#[test]
fn the_style_of_an_image_decides_its_size() {
    for (attributes, text, pixels) in [
        ("width=1 height=1", "ok", 1),
        ("width=1.5px", "ok", 1),
        ("height=' 0'", "ok", 1),
        ("width=600 style='width:1px'", "ok", 1),
        ("width=1 height=1 style='width:600px;height:90px'", "Pay BOB ok", 0),
        ("width=1 style='min-width:600px'", "Pay BOB ok", 0),
        ("width=1%", "Pay BOB ok", 0),
    ] {
        let page = HtmlPage::parse(&format!("<img src=x alt='Pay BOB' {attributes}>ok"));
        assert_eq!((page.text.trim(), page.hidden.tracking_pixels), (text, pixels), "{attributes}");
        assert_eq!(page.hidden_text.contains("BOB"), pixels == 1, "{attributes}");
    }
}

#[track_caller]
fn check_unrendered(html: &str, part: &str) {
    let (_, names) = HtmlPage::parse_for_approval(html);
    assert!(names.iter().any(|name| name.contains(part)), "{html}: {names:?}");
}

#[test]
fn content_that_the_page_leaves_out_is_named() {
    for (html, part) in [
        ("<input type='hidden ' value=EVIL>", "form field"),
        ("<input type='hidden&#10;' value=EVIL>", "form field"),
        ("<img src='da&#9;ta:image/svg+xml,EVIL'>", "image inside"),
        ("<p style=\"background:url('da\\9ta:image/svg+xml,EVIL')\">x</p>", "image inside"),
        ("<table><tfoot><tr><td>10<tbody><tr><td>1000</table>", "order"),
        ("<table><tbody><tr><td>10<thead><tr><td>1000</table>", "order"),
        ("<table><tr><td>10</td></tr><caption>1000</caption></table>", "order"),
        ("<fieldset>10 <legend>1000</legend></fieldset>", "order"),
        ("<div><table align=right><tr><td>10</table>1000</div>", "order"),
        ("<div style='display:flex;flex-wrap:wrap-reverse'><b>10</b><b>1000</b></div>", "order"),
        ("<ul style='list-style-type:decimal'><li value=1000>x</ul>", "lists"),
        ("<ul><li style='list-style:decimal' value=1000>x</ul>", "lists"),
        ("<style>menu{list-style:inside decimal}</style><menu><li value=1000>x</menu>", "lists"),
        ("<ol type=a start=5><li>x</ol>", "lists"),
        ("<ol type=I><li value=1000>x</ol>", "lists"),
        ("<ul><li type=1 value=1000>x</ul>", "lists"),
        ("<ol style='list-style:upper-roman'><li>x</ol>", "lists"),
        ("<ol start=1000 style='list-style:none'><li>euros</ol>", "lists"),
        ("<a href='https://good.example@evil.example/'>x</a>", "user name"),
        ("<a href='java&#9;script:alert(1)'>x</a>", "runs a script"),
        ("<p>Pay <s>10</s> 1000", "struck through"),
        ("<p>Pay <b style='text-decoration:line-through'>10</b> 1000", "struck through"),
        ("<p>Pay 10<sup>3</sup>", "small digits"),
        ("<p>Pay 10<b style='vertical-align:super'>3</b>", "raised"),
        ("<p>Pay <ruby>10<rt>00</rt></ruby>", "text above"),
        ("<p style='display:list-item;list-style:decimal'>euros", "lists"),
        ("<li value=1000>euros", "lists"),
        ("<table><caption align=bottom>10</caption><tr><td>00</table>", "order"),
        ("<p><b style='display:inline-block;margin-right:-90px'>10</b> 1000", "order"),
        ("<p style='word-spacing:-1em'>10 00", "closer together"),
        ("<p style=\"font-family:'Wingdings 2'\">JL", "other signs"),
        ("<p style=\"font:12px 'Zapf Dingbats'\">JL", "other signs"),
        ("<font face='Arial, Webdings'>JL", "other signs"),
        ("<p style='background:url(https://x.example/pay-bob.png)'>x", "background image"),
        ("<style>ul{list-style-image:url('https://x.example/i.png')}</style><ul><li>x</ul>", "background image"),
        ("<p style='border-image:url(//x.example/i.png) 1'>x", "background image"),
        ("<table background='https://x.example/i.png'><tr><td>x</table>", "background image"),
        ("<v:shape><v:textpath string='Pay BOB'></v:shape>", "Outlook"),
        ("<img src='https://x.example/pay-bob.png'>", "image without alternative text"),
        ("<img srcset='https://x.example/pay-bob.png 2x' alt=' '>", "image without alternative text"),
        ("<input type=image src='https://x.example/pay-bob.png'>", "image without alternative text"),
    ] {
        check_unrendered(html, part);
    }
    for html in [
        "<input type=HIDDEN value=token>",
        "<table><caption>x<thead><tr><td>1<tbody><tr><td>2<tfoot><tr><td>3</table>",
        "<div><table align=left><tr><td>1</table><table align=right><tr><td>2</table></div>",
        "<fieldset><legend>1</legend> 2</fieldset>",
        "<ul style='list-style:none'><li>x</ul><ol style='list-style-type:decimal'><li>x</ol>",
        "<ol type=a><li>x</ol>",
        "<a href='https://good.example/@name'>x</a><a href='mailto:a@good.example'>y</a>",
        "<p>Note<sup>1</sup> of 2<sup>nd</sup> June",
        "<img src='https://x.example/logo.png' alt=Logo><img src='https://x.example/open' width=1 height=1><img alt=''>",
    ] {
        let expected: &[&str] = if html.starts_with("<ul") { &["lists with other numbers or signs"] } else { &[] };
        assert_eq!(HtmlPage::parse_for_approval(html).1, expected, "{html}");
    }
}

#[test]
fn text_that_is_hidden_from_some_readers_is_named() {
    for css in [
        "@media (prefers-color-scheme:dark){p{display:none}}",
        "@media (prefers-color-scheme:dark){p{color:#fff}}",
        "@media (max-width:600px){p{font-size:0}}",
        "@media print{p{visibility:hidden}}",
        "@media print{@media (max-width:600px){p{display:none}}}",
        "@media print{p{opacity:.2}} @media  print{body{opacity:.2}}",
        "@media print{p{display:none}} @media only print{p{display:block!important}}",
        "@media screen{p:hover{display:none}}",
        "body:focus-within p{display:none}",
        "[data-ogsc] p{display:none}",
        "p[data-ogsb]{color:#fff}",
        "u + * p{display:none}",
        "u ~ div p{display:none}",
        ":is(u) + div > p{font-size:0}",
        ".gmail_msg p{display:none}",
        "@keyframes k{50%{opacity:0}}p{animation:k 1s}",
        "@keyframes k{from{opacity:0}to{opacity:1}}p{animation:k 1s infinite}",
        "@keyframes k{from{opacity:0}to{opacity:1}}p{animation:k 1s;animation-direction:reverse}",
    ] {
        check_unrendered(&format!("<style>{css}</style><p>1234</p>"), "hidden from some readers");
        check(&format!("<style>{css}</style><p>1234</p>"), "1234", 0);
    }
    for body in ["class=body", "id=body"] {
        let css = "u + .body p,u + #body p{display:none}";
        check_unrendered(&format!("<style>{css}</style><body {body}><p>1234"), "hidden from some readers");
    }
    check_unrendered("<style media=print>p{display:none}</style><p>1234</p>", "hidden from some readers");
    for css in [
        "@media (prefers-color-scheme:dark){body{background:#111}p{color:#eee}}",
        "@media (max-width:600px){p{font-size:20px;width:100%!important}.gone{display:none}}",
        "a:hover{color:#06c} p:hover{text-decoration:underline}",
        "[data-ogsc] p{color:#333}",
        "u + .body p{color:#333} .gmail_msg p{margin:0} u{display:none}",
        "@keyframes k{from{opacity:0}to{opacity:1}}p{animation:k 1s}",
    ] {
        let html = format!("<style>{css}</style><p>1234 <a href='https://good.example/'>x</a></p>");
        assert_eq!(HtmlPage::parse_for_approval(&html).1, Vec::<String>::new(), "{css}");
    }
    let rules = (0..40).map(|n| format!("@media print and (max-width:{n}px){{p{{color:red}}}}"));
    let many = rules.collect::<Vec<_>>().concat();
    check_unrendered(&format!("<style>{many}</style><p>1234</p>"), "hidden from some readers");
}
