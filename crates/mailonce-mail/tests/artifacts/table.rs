//! A table of correct results by language and shape.

use std::{collections::BTreeMap, fmt};

use super::LabelledMail;

/// The shapes of a code, then links, then mails with neither.
pub(crate) const SHAPES: [&str; 10] =
    ["digits", "letters", "spaces", "dashes", "tags", "scripts", "subject", "origin", "link", "trap"];

/// The number of mails, and of correct results.
#[derive(Clone, Copy, Default)]
pub(crate) struct TableCell {
    pub(crate) total: usize,
    right: usize,
}

/// Languages in rows, shapes in columns.
#[derive(Default)]
pub(crate) struct ResultTable(BTreeMap<String, [TableCell; SHAPES.len()]>);

impl ResultTable {
    pub(crate) fn add(&mut self, mail: &LabelledMail, right: bool) {
        let cells = self.0.entry(mail.lang.clone()).or_default();
        let cell = &mut cells[column(shape(mail))];
        cell.total += 1;
        cell.right += usize::from(right);
    }

    pub(crate) fn of(&self, lang: &str, shape: &str) -> TableCell {
        self.0.get(lang).map_or_else(TableCell::default, |cells| cells[column(shape)])
    }
}

fn column(shape: &str) -> usize {
    SHAPES.iter().position(|known| *known == shape).unwrap()
}

fn shape(mail: &LabelledMail) -> &'static str {
    let Some(code) = &mail.code else { return if mail.link.is_some() { "link" } else { "trap" } };
    match mail.trap.as_str() {
        "grouped" | "non-breaking" => "spaces",
        "dashed" | "dashed letters" | "device code" => "dashes",
        "html spans" | "html cells" | "tags" => "tags",
        "full width" | "arabic digits" | "devanagari digits" => "scripts",
        "subject only" => "subject",
        "origin bound" => "origin",
        _ if code.bytes().all(|b| b.is_ascii_digit()) => "digits",
        _ => "letters",
    }
}

impl fmt::Display for ResultTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "right of all, by language and shape\n")?;
        writeln!(f, "     {}", SHAPES.map(|shape| format!("{shape:>9}")).concat())?;
        for (lang, cells) in &self.0 {
            let cell = |cell: &TableCell| match cell.total {
                0 => format!("{:>9}", "-"),
                total => format!("{:>9}", format!("{}/{total}", cell.right)),
            };
            writeln!(f, "{lang:<5}{}", cells.iter().map(cell).collect::<String>())?;
        }
        Ok(())
    }
}
