//! A page as its reader sees it.

use super::{
    TAGS,
    token::{Token, Tokens},
    walk::Walk,
};

/// A page as its reader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Visible text: inline tags vanish, blocks and rows begin a line, cells are a blank apart.
    pub text: String,
    /// The visible part as small, well-formed HTML without attributes.
    pub clean: String,
    /// Links in the order they stand.
    pub anchors: Vec<Anchor>,
    /// What was taken out.
    pub hidden: Hidden,
    /// The start of the hidden text: to be searched for tricks, never to be shown.
    pub hidden_text: String,
    /// Whether a limit was reached.
    pub cut: bool,
}

/// A link and the words that stand on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Where it goes, as written.
    pub href: String,
    /// What its reader sees, one line.
    pub text: String,
    /// Whether its reader sees it at all.
    pub hidden: bool,
}

/// What a reader would not have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// Characters of hidden text.
    pub chars: usize,
    /// Comments that are more than conditions for old mail programs.
    pub comments: usize,
    /// Images that are there to be fetched, not to be seen.
    pub pixels: usize,
}

impl Page {
    /// Reads a page.
    pub fn read(html: &str) -> Self {
        let mut tokens = Tokens::new(html);
        let mut walk = Walk::new(tokens.cut);
        let mut tags = 0;
        for token in tokens.by_ref() {
            match token {
                Token::Text(text) => walk.text(&text),
                Token::Open { name, attributes } => {
                    tags += 1;
                    if tags > TAGS {
                        walk.cut();
                        break;
                    }
                    walk.open(&name, &attributes);
                }
                Token::Close(name) => walk.close(&name),
                Token::Style(css) => walk.style(&css),
                Token::Comment(content) => walk.comment(&content),
            }
        }
        walk.finish()
    }
}
