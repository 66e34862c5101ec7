//! CSS values and conditions are interpreted as browsers do.

use super::{
    colour::Colour,
    declaration,
    media::{self, TriState},
    property::Property as P,
    style::{Cascade, ComputedStyle, DeclarationOrigin},
    transform::Transform,
    value::ComputedValue,
    work_budget::{WorkBudget, within_budget},
};

/// The style of an element with these declarations, in an otherwise empty page.
fn style(css: &str) -> ComputedStyle {
    style_in(css, &ComputedStyle::initial(), &WorkBudget::new(100_000, false))
}

/// The style of an element with these declarations, inside a parent.
fn style_in(css: &str, parent: &ComputedStyle, budget: &WorkBudget) -> ComputedStyle {
    let declarations = declaration::parse_style_attribute(css, false);
    let mut cascade = Cascade::new(budget);
    cascade.add(&declarations, DeclarationOrigin::Inline);
    ComputedStyle::compute(&cascade, parent, false, false)
}

/// Declarations of `count` custom properties.
fn custom_properties(count: usize) -> String {
    (0..count).map(|n| format!("--a{n}:red;")).collect::<Vec<_>>().concat()
}

#[test]
fn lengths_are_pixels() {
    for (css, pixels) in [
        ("0", 0.0),
        ("12pt", 16.0),
        ("2em", 32.0),
        ("1in", 96.0),
        ("50vw", 400.0),
        ("calc(1px + 2 * 3px)", 7.0),
        ("calc((10px - 4px) / 2)", 3.0),
        ("min(3px, 1em, 2px)", 2.0),
        ("clamp(1px, 9px, 5px)", 5.0),
    ] {
        assert_eq!(style(&format!("text-indent:{css}")).length(P::TextIndent), Some(pixels), "{css}");
    }
    assert!(style("text-indent:round(1px, 2px)").number(P::TextIndent).is_nan());
}

#[test]
fn invalid_declarations_are_dropped() {
    for css in [
        "display:none;display:bogus",
        "display:none;display:block block block",
        "display:none;display:",
        "display:none;display:0",
    ] {
        assert!(style(css).is(P::Display, "none"), "{css}");
    }
    assert_eq!(style("font-size:0;font-size:14").length(P::FontSize), Some(0.0));
    assert_eq!(style("background:#000;background:x y").colour(P::BackgroundColor), Colour::BLACK);
    assert_eq!(style("margin:0 0 0 -9px;margin:1px 2px 3px 4px 5px").length(P::MarginLeft), Some(-9.0));
}

#[test]
fn important_declarations_win() {
    assert!(style("display:none ! important;display:block").is(P::Display, "none"));
    assert!(style("display:none!IMPORTANT;all:unset").is(P::Display, "none"));
    assert!(style("display:none !bogus").is(P::Display, "inline"));
}

#[test]
fn shorthands_set_their_parts() {
    assert_eq!(style("margin:1px 2px").length(P::MarginLeft), Some(2.0));
    assert_eq!(style("padding:1px 2px 3px").length(P::PaddingBottom), Some(3.0));
    assert_eq!(style("inset:1px 2px 3px 4px").length(P::Left), Some(4.0));
    assert_eq!(style("font:italic 700 3px/2 Arial").length(P::FontSize), Some(3.0));
    assert!(style("overflow:visible hidden").is(P::OverflowY, "hidden"));
    assert_eq!(style("background:no-repeat url(x) #fff").colour(P::BackgroundColor), Colour::WHITE);
}

#[test]
fn colours_of_every_notation_are_read() {
    let white = [
        "#fff",
        "#FFFFFF",
        "#ffff",
        "white",
        "rgb(255 255 255)",
        "rgb(100%,100%,100%)",
        "hsl(9 0% 100%)",
        "hwb(9 100% 0%)",
    ];
    for css in white {
        assert_eq!(style(&format!("color:{css}")).colour(P::Color), Colour::WHITE, "{css}");
    }
    for css in ["transparent", "#0000", "rgba(9,9,9,0)", "rgb(9 9 9 / 0%)", "hsla(9,9%,9%,0)"] {
        assert!(style(&format!("color:{css}")).colour(P::Color).contrast(Colour::WHITE) < 0.01, "{css}");
    }
    assert!(style("color:oklch(1 0 0)").colour(P::Color).contrast(Colour::WHITE).is_nan());
    assert_eq!(style("color:#fff;background:currentcolor").colour(P::BackgroundColor), Colour::WHITE);
    assert_eq!(Colour::parse_legacy("fffffg"), Colour::parse_legacy("#fffff0"));
}

#[test]
fn transforms_are_sums_of_their_steps() {
    let transform = |css: &str| match style(&format!("transform:{css}")).get(P::Transform) {
        ComputedValue::Transform(transform) => *transform,
        other => panic!("{other:?}"),
    };
    assert_eq!(transform("translateX(-5px) translate(1px, 2px)"), Transform { scale: 1.0, x: -4.0, y: 2.0 });
    assert!(transform("scale(2) scaleY(0)").scale < 0.001);
    assert!(transform("rotateX(90deg)").scale < 0.001 && transform("rotate(90deg)").scale > 0.999);
    assert!(transform("matrix3d(1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1)").scale.is_nan());
}

#[test]
fn custom_properties_are_inserted() {
    assert!(style("--x:none;display:var(--x)").is(P::Display, "none"));
    assert!(style("display:var(--y, none)").is(P::Display, "none"));
    assert!(style("display:none;display:var(--y)").is(P::Display, "inline"));
    assert!(style("display:attr(x)").is_unknown);
}

#[test]
fn the_cascade_is_charged_to_the_budget() {
    let steps = |css: &str, parent: &ComputedStyle| {
        let budget = WorkBudget::new(1_000_000, false);
        style_in(css, parent, &budget);
        1_000_000 - budget.remaining_steps()
    };
    let none = ComputedStyle::initial();
    assert!(steps(&custom_properties(1_000), &none) >= 1_000);
    assert!(steps(&"color:red;".repeat(1_000), &none) >= 1_000);
    assert!(steps(&format!("font-family:{}b", "a,".repeat(1_000)), &none) >= 500);
    // Changing one property copies the whole map.
    assert!(steps("--b:red", &style(&custom_properties(1_000))) >= 1_000);
    assert!(steps("color:red", &style(&custom_properties(1_000))) < 100);
}

#[test]
fn inserted_values_are_charged_to_the_budget() {
    let level = |n: usize| format!("--v{}:{};", n + 1, format!("var(--v{n})").repeat(400));
    let css = format!("--v0: ;{}{}{}{}{}color:var(--v5)", level(0), level(1), level(2), level(3), level(4));
    assert!(within_budget(|| style(&css)).is_none());
}

#[test]
fn equal_custom_properties_are_shared() {
    let parent = style(&custom_properties(100));
    let child = style_in(&custom_properties(100), &parent, &WorkBudget::new(100_000, false));
    assert!(child.shares_custom_properties(&parent));
    let other = style_in("--a1:blue", &parent, &WorkBudget::new(100_000, false));
    assert!(!other.shares_custom_properties(&parent));
}

#[test]
fn media_queries_are_decided_for_a_screen() {
    for (query, truth) in [
        ("", TriState::Yes),
        ("all", TriState::Yes),
        ("print", TriState::No),
        ("not print", TriState::Yes),
        ("only screen and (max-width: 600px)", TriState::No),
        ("screen and (min-width: 50em)", TriState::Yes),
        ("(400px <= width)", TriState::Unknown),
        ("(width > 400px) and (orientation: landscape)", TriState::Yes),
        ("print, (color)", TriState::Yes),
        ("(prefers-color-scheme: dark)", TriState::No),
        ("(some-new-feature)", TriState::Unknown),
    ] {
        assert_eq!(media::matches(query), truth, "{query}");
    }
}
