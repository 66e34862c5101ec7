//! The syntax that templates may use. Fuel bounds how many instructions run, but not how long a text one of them makes,
//! so everything that could build a text or a list out of itself is refused: joining with `~`, repeating with `*`,
//! capturing blocks, calls, slices and lists of variables. Printing has a limit, and so has every filter.

use minijinja::{
    machinery::{
        Token,
        ast::{BinOpKind, CallArg, Expr, Stmt, UnaryOpKind},
        parse, tokenize,
    },
    syntax::SyntaxConfig,
};

use super::{
    TemplateError, TemplatePart,
    filters::{FILTERS, NUMERIC_FILTERS, TESTS},
};

/// Tokens inside one tag. Chains such as `a.b.c` or `a|b|c` nest as deep as they are long.
const MAX_TAG_TOKENS: usize = 200;
/// Uses of `elif` in one part. Each of them nests in the one before.
const MAX_ELIFS: usize = 100;
/// Tags in one part.
const MAX_TAGS: usize = 10_000;

/// Why the syntax of a template is refused: the line and the reason.
type SyntaxRefusal = (usize, String);

/// Refuses a template that uses more than the allowed syntax.
pub(super) fn check(part: TemplatePart, source: &str) -> Result<(), TemplateError> {
    let refused = |(line, message)| TemplateError::of_syntax(part, line, message);
    // The size of each tag comes first, so that nothing below, the parser included, nests deeply.
    check_tags(part, source)?;
    let parsed = parse(source, part.as_str(), SyntaxConfig::default());
    let parsed = parsed.map_err(|error| TemplateError::of_engine(part, &error))?;
    check_statement(&parsed).map_err(refused)
}

fn check_tags(part: TemplatePart, source: &str) -> Result<(), TemplateError> {
    let (mut tags, mut elifs, mut tokens) = (0, 0, 0);
    for token in tokenize(source, false, SyntaxConfig::default()) {
        let (token, span) = token.map_err(|error| TemplateError::of_engine(part, &error))?;
        match token {
            Token::VariableStart | Token::BlockStart => {
                tags += 1;
                tokens = 0;
            }
            Token::Ident("elif") => elifs += 1,
            _ => tokens += 1,
        }
        let message = match () {
            () if tokens > MAX_TAG_TOKENS => format!("a tag has more than {MAX_TAG_TOKENS} names and signs"),
            () if elifs > MAX_ELIFS => format!("there are more than {MAX_ELIFS} `elif`"),
            () if tags > MAX_TAGS => format!("there are more than {MAX_TAGS} tags"),
            () => continue,
        };
        return Err(TemplateError::of_syntax(part, usize::from(span.start_line), message));
    }
    Ok(())
}

fn check_all(statements: &[Stmt<'_>]) -> Result<(), SyntaxRefusal> {
    statements.iter().try_for_each(check_statement)
}

fn check_statement(statement: &Stmt<'_>) -> Result<(), SyntaxRefusal> {
    let refuse = |line: u16, name: &str, instead: &str| {
        Err((usize::from(line), format!("`{name}` is not allowed in templates{instead}")))
    };
    match statement {
        Stmt::Template(template) => check_all(&template.children),
        Stmt::EmitRaw(_) => Ok(()),
        Stmt::EmitExpr(emit) => check_expression(&emit.expr),
        Stmt::Set(set) => check_expression(&set.expr),
        Stmt::IfCond(condition) => {
            check_expression(&condition.expr)?;
            check_all(&condition.true_body)?;
            check_all(&condition.false_body)
        }
        Stmt::ForLoop(each) if each.recursive => refuse(each.span().start_line, "recursive", ""),
        Stmt::ForLoop(each) => {
            check_expression(&each.iter)?;
            each.filter_expr.iter().try_for_each(check_expression)?;
            check_all(&each.body)?;
            check_all(&each.else_body)
        }
        Stmt::SetBlock(block) => refuse(block.span().start_line, "set … endset", "; write `{% set name = value %}`"),
        Stmt::WithBlock(block) => refuse(block.span().start_line, "with", "; use `set`"),
        Stmt::AutoEscape(block) => refuse(block.span().start_line, "autoescape", "; use the filter `safe`"),
        Stmt::FilterBlock(block) => refuse(block.span().start_line, "filter", "; filter each value"),
        Stmt::Do(call) => refuse(call.span().start_line, "do", ""),
    }
}

fn check_expression(expression: &Expr<'_>) -> Result<(), SyntaxRefusal> {
    let refuse = |message: String| Err((usize::from(expression.span().start_line), message));
    match expression {
        Expr::Var(_) | Expr::Const(_) => Ok(()),
        Expr::UnaryOp(operation) => check_expression(&operation.expr),
        Expr::BinOp(operation) => {
            check_expression(&operation.left)?;
            check_expression(&operation.right)?;
            match operation.op {
                BinOpKind::Concat => {
                    refuse("`~` is not allowed in templates; print the values one after the other".into())
                }
                BinOpKind::Pow => refuse("`**` is not allowed in templates".into()),
                op if !is_arithmetic(op) || (is_number(&operation.left) && is_number(&operation.right)) => Ok(()),
                _ => refuse(
                    "both sides of an arithmetic operation must be numbers: write `price|float * count|int`".into(),
                ),
            }
        }
        Expr::Compare(compare) => {
            check_expression(&compare.expr)?;
            compare.ops.iter().try_for_each(|op| check_expression(&op.expr))
        }
        Expr::IfExpr(choice) => {
            check_expression(&choice.test_expr)?;
            check_expression(&choice.true_expr)?;
            choice.false_expr.iter().try_for_each(check_expression)
        }
        Expr::Filter(filter) if !FILTERS.contains(&filter.name) => {
            refuse(format!("there is no filter `{}`; the filters are {}", filter.name, FILTERS.join(", ")))
        }
        Expr::Filter(filter) => {
            filter.expr.iter().try_for_each(check_expression)?;
            filter.args.iter().try_for_each(check_argument)
        }
        Expr::Test(test) if !TESTS.contains(&test.name) => {
            refuse(format!("there is no test `{}`; the tests are {}", test.name, TESTS.join(", ")))
        }
        Expr::Test(test) => {
            check_expression(&test.expr)?;
            test.args.iter().try_for_each(check_argument)
        }
        Expr::GetAttr(field) => check_expression(&field.expr),
        Expr::GetItem(item) => {
            check_expression(&item.expr)?;
            check_expression(&item.subscript_expr)
        }
        Expr::Call(_) => refuse("functions and methods are not allowed in templates; use a filter".into()),
        Expr::Slice(_) => refuse("slices are not allowed in templates; use the filter `truncate`".into()),
        Expr::List(list) => check_items(list.items.iter(), expression),
        Expr::Tuple(tuple) => check_items(tuple.items.iter(), expression),
        Expr::Map(map) => check_items(map.keys.iter().chain(&map.values), expression),
    }
}

/// A list of variables could contain itself twice, and that list again, so only constants are allowed.
fn check_items<'a, 'b: 'a>(
    mut items: impl Iterator<Item = &'a Expr<'b>>,
    list: &Expr<'_>,
) -> Result<(), SyntaxRefusal> {
    if items.all(|item| matches!(item, Expr::Const(_))) {
        return Ok(());
    }
    Err((usize::from(list.span().start_line), "lists and maps may have only constants, such as `[\"a\", 1]`".into()))
}

fn check_argument(argument: &CallArg<'_>) -> Result<(), SyntaxRefusal> {
    match argument {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) | CallArg::PosSplat(value) | CallArg::KwargSplat(value) => {
            check_expression(value)
        }
    }
}

fn is_arithmetic(op: BinOpKind) -> bool {
    matches!(
        op,
        BinOpKind::Add | BinOpKind::Sub | BinOpKind::Mul | BinOpKind::Div | BinOpKind::FloorDiv | BinOpKind::Rem
    )
}

/// Whether an expression is a number by its form. With a text, `+` and `*` would make a longer text.
fn is_number(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Const(constant) => constant.value.is_number(),
        Expr::UnaryOp(operation) => matches!(operation.op, UnaryOpKind::Neg) && is_number(&operation.expr),
        Expr::BinOp(operation) => is_arithmetic(operation.op),
        Expr::Filter(filter) => NUMERIC_FILTERS.contains(&filter.name),
        _ => false,
    }
}
