//! Previews of hostile and of honest emails.

use super::*;
use mailonce_core::outbound::content::{RawAttachment, RawContent};
use uuid::Uuid;

fn content(change: impl FnOnce(&mut RawContent)) -> EmailContent {
    let mut raw = RawContent {
        from: "agent@example.com".into(),
        to: vec!["ann@example.org".into()],
        subject: "Invoice".into(),
        text: Some("Please pay 10 euros.".into()),
        ..RawContent::default()
    };
    change(&mut raw);
    EmailContent::validate(raw).unwrap()
}

#[test]
fn everybody_and_everything_is_shown() {
    let preview = Preview::of(&content(|raw| {
        raw.cc = vec!["Bob <bob@example.net>".into()];
        raw.bcc = vec!["eve@evil.example".into()];
        raw.reply_to = vec!["eve@evil.example".into()];
        raw.html = Some("<p>Please pay <b>9000</b> euros.</p>".into());
        raw.attachments = vec![RawAttachment {
            filename: Some("invoice.pdf.exe".into()),
            content: "TVo=".into(),
            content_type: Some("application/pdf".into()),
            content_id: None,
        }];
    }));
    let shown = preview.to_plain_text();
    for part in ["bob@example.net", "Bcc:", "Reply-To:", "evil.example", "invoice.pdf.exe (application/pdf, 2 bytes)"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.contains("HTML part has words that the text part lacks or has in another order: 9000"), "{shown}");
    assert!(shown.contains("text part has words that the HTML part lacks or has in another order: 10"), "{shown}");
    assert!(shown.contains("is a program"), "{shown}");
}

#[test]
fn links_are_shown_with_where_they_lead() {
    let preview = Preview::of(&content(|raw| {
        let shop = "<a href='https://evil.example/pay'>https://shop.example</a>";
        raw.html = Some(format!("<p>Please pay 10 euros.</p>{shop} {shop} <a href='https://example.com/x'>here</a>"));
    }));
    let shown = preview.to_plain_text();
    for part in ["Link:     https://evil.example/pay (https://shop.example)", "Link:     https://example.com/x (here)"]
    {
        assert_eq!(shown.matches(part).count(), 1, "{part}: {shown}");
    }
    assert!(shown.contains("Warning:  The link \"https://shop.example\" leads to https://evil.example/pay"), "{shown}");
    assert!(!shown.contains("The link \"here\""), "{shown}");
}

#[test]
fn words_that_a_reader_does_not_see_are_counted() {
    let html = "<p>Please pay 10 euros.</p><p style='display:none'>secret</p>";
    let preview = Preview::of(&content(|raw| raw.html = Some(html.into())));
    assert_eq!(preview.warnings, ["The HTML part hides 6 characters, which some readers may see"]);
    assert!(
        preview.to_plain_text().contains("--- HTML, text that most mail programs hide ---\nsecret"),
        "{}",
        preview.to_plain_text()
    );
}

/// Warnings about a mail whose text part says the same as its HTML part.
fn warnings_of(html: &str) -> Vec<String> {
    let preview = Preview::of(&content(|raw| (raw.text, raw.html) = (None, Some(html.into()))));
    preview.warnings
}

#[test]
fn what_cannot_be_shown_is_named() {
    let long_alt = format!("<img src='https://x.example/i.png' alt='{}EVIL'>", "x".repeat(200));
    for (more, warning) in [
        ("<!--[if mso]>EVIL<![endif]-->", "text for Outlook alone"),
        ("<!-- [if mso]>EVIL<![endif]-->", "text for Outlook alone"),
        ("<!--[if mso]><a href='https://evil.example'></a><![endif]-->", "text for Outlook alone"),
        ("<!--[if mso]><style>.a{display:none}</style><![endif]-->", "text for Outlook alone"),
        ("<form action='https://evil.example'></form>", "a form"),
        ("<svg><text>EVIL</text></svg>", "a drawing"),
        ("<noscript>EVIL</noscript>", "text for programs without scripts"),
        ("<select><option>EVIL</select>", "a list to choose from"),
        ("<input placeholder='EVIL'>", "a form field"),
        ("<textarea placeholder='EVIL'></textarea>", "a form field"),
        ("<input type=submit value='EVIL'>", "a form field"),
        ("<input type=image alt='EVIL'>", "a form field"),
        (&long_alt, "a long description of an image"),
        ("<img src='https://evil.example/pay-bob.png'>", "an image without alternative text"),
        ("<style>u + .body p{display:none}</style><body class=body>", "hidden from some readers"),
        ("<img src='data:image/svg+xml,<svg><text>EVIL</text></svg>'>", "an image inside the HTML"),
        ("<img srcset='DATA:image/svg+xml,x 2x'>", "an image inside the HTML"),
        ("<p style='background-image:url(data:image/svg+xml,EVIL)'>", "an image inside the HTML"),
        ("<style>p{background:url('data:image/png;base64,AAAA')}</style>", "an image inside the HTML"),
        ("<link rel=stylesheet href='https://evil.example/a.css'>", "a style sheet from elsewhere"),
        ("<style>@import 'https://evil.example/a.css';</style>", "a style sheet from elsewhere"),
        ("<style>@import url(https://fonts.googleapis.com.evil.example/css);</style>", "a style sheet from elsewhere"),
        ("<style>@font-face{font-family:x;src:url(https://evil.example/x.woff2)}</style>", "a font of its own"),
        ("<style>@font-face{font-family:x;src:url('data:font/woff2,AAAA')}</style>", "a font of its own"),
        ("<meta http-equiv=refresh content='0; url=https://evil.example/'>", "a redirect to https://evil.example/"),
        (&format!("{}EVIL", "<div>".repeat(600)), "too complex"),
        (&format!("{}EVIL", "<b></b>".repeat(60_000)), "too complex"),
        (&format!("<!--{}-->EVIL", "x".repeat(800_000)), "too complex"),
        (&format!("<style>{}p{{color:red}}</style>", "@media all{".repeat(100)), "too complex"),
        ("<style>@media(max-width:600px){p.x{display:block}}p.x{display:none}</style><p class=x>EVIL</p>", "hides 4"),
    ] {
        let warnings = warnings_of(&format!("<p>Please pay 10 euros.</p>{more}"));
        let start: String = more.chars().take(60).collect();
        assert!(warnings.iter().any(|warned| warned.contains(warning)), "{start}: {warnings:?}");
    }
}

#[test]
fn text_in_style_sheets_is_named() {
    for css in [
        "content:'EVIL'",
        "content :'EVIL'",
        "content/**/:'EVIL'",
        "c\\6fntent:'EVIL'",
        "CONTENT:var(--x)",
        "content:attr(title)",
        "content:counter(x)",
        "list-style-type:'Pay BOB '",
        "list-style:'Pay BOB ' inside",
        "list-style:symbols('Pay' 'BOB')",
        "quotes:'Pay BOB' '.'",
        "text-overflow:'Pay BOB'",
        "-webkit-text-emphasis:'9'",
        "counter-reset:list-item 999",
    ] {
        for html in [
            format!("<style>p::before{{{css}}}</style><p>Pay ANN</p>"),
            format!("<style>@media all{{a:hover,p{{color:red;&::before{{{css}}}}}}}</style><p>Pay ANN</p>"),
            format!("<p style=\"color:red;{css}\">Pay ANN</p>"),
        ] {
            let warnings = warnings_of(&html);
            assert!(warnings.iter().any(|warned| warned.contains("text in its style sheet")), "{html}: {warnings:?}");
        }
    }
    let counter = warnings_of("<style>@counter-style x{system:cyclic;symbols:'Pay BOB'}</style><p>Pay ANN</p>");
    assert!(counter.iter().any(|warned| warned.contains("text in its style sheet")), "{counter:?}");
}

#[test]
fn other_orders_are_named() {
    for html in [
        "<p>Pay <bdo dir=rtl>0001</bdo>",
        "<p dir=rtl>Pay 10, not 1000",
        "<p style='direction:rtl'>Pay 10, not 1000",
        "<p>Pay <b style='unicode-bidi:bidi-override;direction:rtl'>0001</b>",
        "<div style='display:flex;flex-direction:row-reverse'><b>10</b><b>1000</b></div>",
        "<div style='display:flex;flex-flow:column-reverse wrap'><b>10</b><b>1000</b></div>",
        "<div style='display:flex'><b style='order:2'>10</b><b style='order:1'>1000</b></div>",
        "<p>Pay <b style='float:right'>not 10</b> but 1000",
        "<style>.r{float:right}</style><p>Pay <b class=r>not 10</b> but 1000",
        "<p>Pay <b style='position:relative;left:5em'>10</b> <b>1000</b>",
        "<p style='writing-mode:vertical-rl'>Pay 10",
        "<b style='display:inline-block;transform:rotate(180deg)'>9</b>",
        "<b style='display:inline-block;transform:scaleX(-1)'>01</b>",
        "<table><tr style='display:table-footer-group'><td>10<tr><td>1000</table>",
    ] {
        let warnings = warnings_of(html);
        assert!(warnings.iter().any(|warned| warned.contains("another place or order")), "{html}: {warnings:?}");
    }
}

#[test]
fn links_lead_where_a_browser_goes() {
    let base = "<base href='https://evil.example/'>";
    let img = "<img src='https://x.example/i.png' width=80>";
    for (html, url, warning) in [
        (
            format!("{base}<a href='https:good.example/login'>Log in</a>"),
            "https://evil.example/good.example/login",
            "base address",
        ),
        (format!("{base}<a href='good.example/login'>Log in</a>"), "https://evil.example/good.example/login", ""),
        (format!("{base}<a href='login'>good.example</a>"), "https://evil.example/login", "leads to"),
        (format!("<a href='https://evil.example/' style='color:#fff'>{img}</a>"), "https://evil.example/", "an image"),
        (
            format!("<p style='font-size:0'><a href='https://evil.example/'>{img}</a>"),
            "https://evil.example/",
            "an image",
        ),
        (
            format!("{img}<map name=m><area href='https://evil.example/' alt=Pay></map>"),
            "https://evil.example/",
            "an image",
        ),
        ("<a href='https://evil.example/'>good.example</a>".into(), "https://evil.example/", "leads to"),
        ("<a href='https://192.0.2.1/'>good.example!</a>".into(), "https://192.0.2.1/", "leads to"),
        ("<a href='mailto:eve@evil.example'>ann@good.example</a>".into(), "mailto:eve@evil.example", "leads to"),
    ] {
        let preview = Preview::of(&content(|raw| (raw.text, raw.html) = (None, Some(html.clone()))));
        assert!(preview.links.iter().any(|link| link.url == url), "{html}: {:?}", preview.links);
        let is_named = preview.warnings.iter().any(|text| text.contains(warning));
        assert_eq!(is_named, !warning.is_empty(), "{html}: {:?}", preview.warnings);
    }
}

#[test]
fn the_sign_of_an_amount_is_compared() {
    let preview = Preview::of(&content(|raw| {
        raw.text = Some("Your balance: -€1000".into());
        raw.html = Some("<p>Your balance: €1000</p>".into());
    }));
    assert_eq!(preview.warnings.len(), 2, "{:?}", preview.warnings);
    assert!(preview.warnings[0].ends_with(": €1000"), "{:?}", preview.warnings);
    assert!(preview.warnings[1].ends_with(": -€1000"), "{:?}", preview.warnings);
}

#[tokio::test]
async fn a_preview_does_not_block_the_thread_that_requests_it() {
    let rules = ".a:not(.b):not(.c) p{color:red}".repeat(400);
    let html = format!("<style>{rules}</style><div class=a>{}</div>", "<p>slow</p>".repeat(1_000));
    let mut preview =
        std::pin::pin!(render_on_blocking_thread(Arc::new(content(|raw| (raw.text, raw.html) = (None, Some(html))))));
    tokio::select! {
        biased;
        _ = &mut preview => panic!("rendered in the first poll, on the thread of the request"),
        () = std::future::ready(()) => {}
    }
    assert!(preview.await.html_as_text.is_some_and(|text| text.starts_with("slow")));
}

#[test]
fn the_order_of_words_is_compared() {
    let preview = Preview::of(&content(|raw| {
        raw.text = Some("Pay 10 euros, not 1000.".into());
        raw.html = Some("<p>Pay 1000 euros, not 10.</p>".into());
    }));
    assert_eq!(preview.warnings.len(), 2, "{:?}", preview.warnings);
    assert!(preview.warnings[0].contains("in another order: 1000 10"), "{:?}", preview.warnings);
}

#[test]
fn lists_have_the_numbers_that_a_reader_sees() {
    let html = "<ol start=7><li>Ann<li value=1000>Bob</ol><ol reversed><li>Cid<li>Dan</ol>";
    let preview = Preview::of(&content(|raw| (raw.text, raw.html) = (None, Some(html.into()))));
    let shown = preview.html_as_text.unwrap();
    for line in ["7. Ann", "1000. Bob", "2. Cid", "1. Dan"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

/// Mails as common tools write them.
const HONEST: &[&str] = &[
    "<!doctype html><html dir=ltr><head><meta charset=utf-8><meta name=viewport content='width=device-width'><style>body{margin:0;\
     padding:0}@media only screen and (max-width:480px){.col{width:100%!important;float:none!important}}.clear:after{content:\" \";\
     display:table;clear:both}blockquote{quotes:none}blockquote:before{content:''}ul{list-style-type:none}a:hover{color:#06c}\
     </style></head><body><table role=presentation width=600 align=center><tr><td style='padding:24px;font:16px/1.5 Arial;\
     direction:ltr;text-align:left'><h1>Your order</h1><p>Hello Ann, your order 4821 is on its way.</p><a href=\
     'https://shop.example/orders/4821' style='background:#1a82e2;color:#fff;padding:12px 18px;display:inline-block'>Track\
     </a></td></tr></table></body></html>",
    // As MJML writes it.
    "<!doctype html><html xmlns:o='urn:schemas-microsoft-com:office:office'><head><!--[if mso]><noscript><xml>\
     <o:OfficeDocumentSettings><o:AllowPNG/><o:PixelsPerInch>96</o:PixelsPerInch></o:OfficeDocumentSettings></xml></noscript>\
     <![endif]--><!--[if lte mso 11]><style type='text/css'>.mj-outlook-group-fix{width:100% !important}</style><![endif]-->\
     <!--[if !mso]><!--><link href='https://fonts.googleapis.com/css?family=Ubuntu:300,400' rel=stylesheet><style>@import \
     url(https://fonts.googleapis.com/css?family=Ubuntu:300,400);</style><!--<![endif]--></head><body><!--[if mso | IE]><table \
     align='center' border='0' style='width:600px;' width='600'><tr><td style='line-height:0px;font-size:0px'><![endif]--><div \
     style='margin:0 auto;max-width:600px'><div class=mj-column style='font-size:0;text-align:left;direction:ltr;display:\
     inline-block;vertical-align:top;width:100%'><div style='font-family:Ubuntu;font-size:13px'>Welcome to Example.</div></div>\
     </div><!--[if mso | IE]></td></tr></table><![endif]--></body></html>",
    // A button that is drawn for Outlook.
    "<div><!--[if mso]><v:roundrect xmlns:v='urn:schemas-microsoft-com:vml' href='https://example.com/confirm' style='height:40px'>\
     <w:anchorlock/><center style='color:#fff'>Confirm</center></v:roundrect><![endif]--><!--[if !mso]><!--><a \
     href='https://example.com/confirm' style='background:#06c;color:#fff'>Confirm</a><!--<![endif]--></div>",
    "<table width='100%'><tr><td>Total<td align=right>10.00</table><p>Paid <span style='float:right'>today</span></p>",
    "<html dir=rtl lang=ar><body><p style='direction:rtl'>مرحبا، طلبك رقم 4821 في الطريق إليك.</p></body></html>",
    "<p>Write to <a href='mailto:help@example.com?subject=Hi'>help@example.com</a> or see <a href='https://www.example.com/faq'>\
     example.com/faq</a>.</p><ol type=a><li>One<li>Two</ol><img src='https://example.com/logo.png' alt='Example' width=80>",
];

#[test]
fn honest_mails_give_no_warnings() {
    for html in HONEST {
        assert_eq!(warnings_of(html), Vec::<String>::new(), "{html}");
    }
    let preview = Preview::of(&content(|raw| {
        raw.text = Some(
            "Hello Ann,\n\nreset your password: https://example.com/reset?t=1\n\n- Example (https://example.com)"
                .into(),
        );
        raw.html = Some(
            "<p>Hello Ann,</p><p>reset your <a href='https://example.com/reset?t=1'>password</a>:</p>\
             <ul><li><a href='https://example.com'>Example</a></ul>"
                .into(),
        );
    }));
    assert_eq!(preview.warnings, Vec::<String>::new());
}

#[test]
fn a_name_does_not_look_like_another_recipient() {
    let preview = Preview::of(&content(|raw| raw.to = vec!["\"ann@example.org, Bob\" <eve@evil.example>".into()]));
    assert_eq!(preview.to, ["\"ann@example.org, Bob\" <eve@evil.example>"]);
}

#[test]
fn parts_that_say_the_same_are_not_flagged() {
    let preview = Preview::of(&content(|raw| raw.html = Some("<p>Please <i>pay</i> 10&nbsp;euros.</p>".into())));
    assert!(preview.warnings.is_empty(), "{:?}", preview.warnings);
}

#[test]
fn the_digest_covers_every_part() {
    let id = EmailId(Uuid::from_u128(1));
    let digest = |change: fn(&mut RawContent)| Preview::of(&content(change)).digest(id);
    let plain = digest(|_| {});
    let attached = |content: &str| RawAttachment {
        filename: Some("a".into()),
        content: content.into(),
        content_type: None,
        content_id: None,
    };
    let changed = [
        digest(|raw| raw.cc = vec!["bob@example.net".into()]),
        digest(|raw| raw.bcc = vec!["bob@example.net".into()]),
        digest(|raw| raw.reply_to = vec!["bob@example.net".into()]),
        digest(|raw| raw.html = Some("<p>Please pay 10 euros.</p>".into())),
        digest(|raw| raw.subject = "Other".into()),
        Preview::of(&content(|raw| raw.attachments = vec![attached("TVo=")])).digest(id),
        Preview::of(&content(|raw| raw.attachments = vec![attached("TVpa")])).digest(id),
        Preview::of(&content(|_| {})).digest(EmailId(Uuid::from_u128(2))),
    ];
    let all: BTreeSet<&String> = changed.iter().chain([&plain]).collect();
    assert_eq!(all.len(), changed.len() + 1);
}

#[test]
fn hidden_and_reordering_characters_are_written_out() {
    let shown = Preview::of(&content(|raw| raw.subject = "Re\u{202e}x\u{200b}".into())).to_plain_text();
    assert!(shown.contains("Re\\u{202e}x\\u{200b}"), "{shown}");
}
