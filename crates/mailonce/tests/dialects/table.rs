//! Compares the tables in the documentation with the report of a script.

use std::{collections::BTreeMap, path::Path};

use crate::sdks::SdkCoverage;

/// The rows under a heading: each method with its result.
fn documented_rows(title: &str) -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dialects.md");
    let text = std::fs::read_to_string(path).unwrap();
    let heading = format!("### {title}\n");
    let part = text.split(heading.as_str()).nth(1).unwrap_or_else(|| panic!("docs/dialects.md has no part {title}"));
    let part = part.split("\n#").next().unwrap();
    let mut rows = BTreeMap::new();
    for line in part.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // Several methods with the same result share a row.
        for method in cells[1].split(", ") {
            let before = rows.insert(method.trim_matches('`').to_owned(), cells[2].trim_matches('`').to_owned());
            assert!(before.is_none(), "{method} is listed twice under {title}");
        }
    }
    rows
}

/// Fails unless the table lists every method of the package with its actual result.
pub(crate) fn check_table(title: &str, coverage: &SdkCoverage) {
    let mut seen = BTreeMap::new();
    for method in &coverage.methods {
        let answer = if coverage.worked.contains(method) {
            "covered".to_owned()
        } else {
            coverage.refused.get(method).cloned().unwrap_or_else(|| "never called".to_owned())
        };
        seen.insert(method.clone(), answer);
    }
    let documented = documented_rows(title);
    let wrong: Vec<String> = seen
        .iter()
        .filter(|(method, answer)| documented.get(*method) != Some(answer))
        .map(|(method, answer)| format!("| `{method}` | {answer} |"))
        .chain(
            documented
                .keys()
                .filter(|method| !seen.contains_key(*method))
                .map(|method| format!("{method} does not exist")),
        )
        .collect();
    assert!(wrong.is_empty(), "docs/dialects.md, {title}:\n{}", wrong.join("\n"));
}

/// Fails unless `docs/dialects-methods.md` has the verdict of every method of an npm package. `missing` is a gap that the
/// page admits, whatever the error is.
pub(crate) fn check_methods_page(title: &str, coverage: &SdkCoverage) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dialects-methods.md");
    let text = std::fs::read_to_string(path).unwrap();
    let heading = format!("## {title}\n");
    let part = text.split(heading.as_str()).nth(1).unwrap_or_else(|| panic!("the page has no part {title}"));
    let rows = part.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let documented: BTreeMap<String, String> =
        rows.map(cells).map(|row| (row[1].trim_matches('`').to_owned(), row[2].clone())).collect();
    let verdict = |method: &String| match coverage.refused.get(method) {
        _ if coverage.worked.contains(method) => "works",
        Some(answer) if answer.starts_with("501 ") => "501",
        _ => "missing",
    };
    let seen: BTreeMap<String, String> =
        coverage.methods.iter().map(|method| (method.clone(), verdict(method).to_owned())).collect();
    assert_eq!(seen, documented, "docs/dialects-methods.md, {title}");
}
