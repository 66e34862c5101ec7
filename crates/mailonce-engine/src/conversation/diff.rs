//! A line diff of two texts.

/// How many lines of each text are compared; the rest is ignored.
const MAX_LINES: usize = 400;

/// The lines of both texts in order, prefixed with `- ` (only in `old`), `+ ` (only in `new`) or two spaces (in both).
pub(crate) fn lines(old: &str, new: &str) -> Vec<String> {
    let old: Vec<&str> = old.lines().take(MAX_LINES).collect();
    let new: Vec<&str> = new.lines().take(MAX_LINES).collect();
    let common = lcs_lengths(&old, &new);
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            out.push(format!("  {}", old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            out.push(format!("- {}", old[i]));
            i += 1;
        } else {
            out.push(format!("+ {}", new[j]));
            j += 1;
        }
    }
    out
}

/// For each pair of positions, the length of the longest common subsequence of the lines that follow.
fn lcs_lengths(old: &[&str], new: &[&str]) -> Vec<Vec<usize>> {
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] =
                if old[i] == new[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_removed_and_added_lines_are_marked() {
        let shown = lines("Hello Ann,\nyour order shipped.\nBye", "Hi Ann,\nyour order shipped.\nBye\nBot");
        assert_eq!(shown, ["- Hello Ann,", "+ Hi Ann,", "  your order shipped.", "  Bye", "+ Bot"]);
        assert_eq!(lines("", "a"), ["+ a"]);
        assert_eq!(lines("a", ""), ["- a"]);
        assert!(lines("", "").is_empty());
        assert_eq!(lines(&"x\n".repeat(9_999), "").len(), MAX_LINES);
    }
}
