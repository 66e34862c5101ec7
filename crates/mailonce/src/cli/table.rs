//! Tables that fit the terminal: long columns are truncated; if that is not enough, each row becomes a block.

use unicode_width::UnicodeWidthChar as _;

/// Spaces between two columns.
const COLUMN_GAP: usize = 2;
/// Minimum width of a truncated column.
const MIN_COLUMN_WIDTH: usize = 12;

/// Renders a table. Columns whose head starts with `~` may be truncated.
pub(super) fn render(
    heads: &[&str],
    rows: &[Vec<String>],
    width: Option<usize>,
    dim: impl Fn(&str) -> String,
) -> String {
    let names: Vec<&str> = heads.iter().map(|head| head.trim_start_matches('~')).collect();
    let widest =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| display_width(cell)).max().unwrap_or(0);
    let mut widths: Vec<usize> =
        names.iter().enumerate().map(|(at, name)| display_width(name).max(widest(at))).collect();
    let elastic: Vec<usize> =
        (0..heads.len()).filter(|at| heads.get(*at).is_some_and(|head| head.starts_with('~'))).collect();
    if !shrink_to_fit(&mut widths, &elastic, width) {
        return blocks(&names, rows, width, dim);
    }
    let head = render_row(&names.iter().map(ToString::to_string).collect::<Vec<_>>(), &widths);
    let body = rows.iter().map(|row| format!("{}\n", render_row(row, &widths)));
    std::iter::once(format!("{}\n", dim(&head))).chain(body).collect()
}

/// Shrinks the widest elastic column until the row fits. False if it cannot.
fn shrink_to_fit(widths: &mut [usize], elastic: &[usize], width: Option<usize>) -> bool {
    let Some(room) = width else { return true };
    loop {
        let needed = widths.iter().sum::<usize>() + COLUMN_GAP * widths.len().saturating_sub(1);
        if needed <= room {
            return true;
        }
        let widest = elastic.iter().copied().max_by_key(|at| widths.get(*at).copied().unwrap_or(0));
        match widest.and_then(|at| widths.get_mut(at)).filter(|width| **width > MIN_COLUMN_WIDTH) {
            Some(width) => *width -= 1,
            None => return false,
        }
    }
}

/// One row, without trailing spaces.
fn render_row(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let cell = truncate(cell, *width);
        let pad = width.saturating_sub(display_width(&cell)) + COLUMN_GAP;
        line.push_str(&cell);
        line.extend(std::iter::repeat_n(' ', pad));
    }
    line.trim_end().to_owned()
}

/// Renders each row as names and values.
fn blocks(names: &[&str], rows: &[Vec<String>], room: Option<usize>, dim: impl Fn(&str) -> String) -> String {
    let width = names.iter().map(|name| display_width(name)).max().unwrap_or(0);
    let block = |row: &Vec<String>| {
        let line = |(name, cell): (&&str, &String)| {
            format!("{}  {}\n", dim(&format!("{name:width$}")), wrap(cell, width + COLUMN_GAP, room))
        };
        names.iter().zip(row).map(line).collect::<String>()
    };
    rows.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// Wraps text at spaces and indents the following lines. Words are never split, so that ids can be copied.
pub(super) fn wrap(text: &str, indent: usize, width: Option<usize>) -> String {
    let Some(room) = width.map(|width| width.saturating_sub(indent).max(20)) else { return text.to_owned() };
    let (mut lines, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let length = display_width(word);
        if used > 0 && used + 1 + length > room {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            used = 0;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

/// Truncates a cell with an ellipsis. Coloured cells are short, so that no colour code is cut.
fn truncate(cell: &str, width: usize) -> String {
    if display_width(cell) <= width {
        return cell.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 1);
    for c in cell.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(c);
    }
    format!("{}…", kept.trim_end())
}

/// Width of a text on a terminal, without colour codes.
fn display_width(text: &str) -> usize {
    let (mut count, mut colour) = (0, false);
    for c in text.chars() {
        match c {
            '\x1b' => colour = true,
            'm' if colour => colour = false,
            _ if colour => {}
            c => count += c.width().unwrap_or(0),
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        [["0123456789", "sent", "A subject that is rather long"], ["9876543210", "\x1b[32mok\x1b[0m", "短い件名"]]
            .map(|row| row.map(str::to_owned).to_vec())
            .to_vec()
    }

    const HEADS: &[&str] = &["id", "state", "~subject"];

    #[test]
    fn columns_are_aligned_with_wide_characters_and_colours() {
        let laid = render(HEADS, &rows(), None, str::to_owned);
        assert_eq!(
            laid,
            "id          state  subject\n0123456789  sent   A subject that is rather long\n\
             9876543210  \x1b[32mok\x1b[0m     短い件名\n"
        );
    }

    #[test]
    fn what_does_not_fit_is_cut_where_it_may_be() {
        let laid = render(HEADS, &rows(), Some(36), str::to_owned);
        assert!(laid.lines().all(|line| display_width(line) <= 36), "{laid}");
        assert!(laid.contains("0123456789  sent   A subject that i…"), "{laid}");
    }

    #[test]
    fn a_narrow_terminal_gets_a_block_for_each_row() {
        let laid = render(HEADS, &rows(), Some(20), str::to_owned);
        assert!(
            laid.starts_with("id       0123456789\nstate    sent\nsubject  A subject that is\n         rather long\n"),
            "{laid}"
        );
        assert!(laid.contains("long\n\nid       9876543210\n"), "{laid}");
    }

    #[test]
    fn sentences_are_wrapped_below_themselves() {
        assert_eq!(wrap("one two three four five six", 4, Some(24)), "one two three four\n    five six");
        assert_eq!(wrap("one two", 4, None), "one two");
        let long = "x".repeat(40);
        assert_eq!(wrap(&format!("a {long} b"), 2, Some(30)), format!("a\n  {long}\n  b"));
    }
}
