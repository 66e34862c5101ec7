//! Transforms: how much they shrink text, and how far they move it.

#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "an uncomputed value is NaN and must count as hidden")]

use cssparser::{ParseError, Parser, Token};

use super::number::{Quantity, Units, VIEWPORT_WIDTH, length, number_or_percentage, quantity};

/// The effect of a transform on the text inside. NaN for functions that are not computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::html) struct Transform {
    /// The smaller of the two scale factors.
    pub(in crate::html) scale: f32,
    pub(in crate::html) x: f32,
    pub(in crate::html) y: f32,
}

impl Transform {
    pub(in crate::html) const NONE: Self = Self { scale: 1.0, x: 0.0, y: 0.0 };

    /// Combines two transforms.
    pub(in crate::html) fn then(self, other: Self) -> Self {
        Self { scale: self.scale * other.scale, x: self.x + other.x, y: self.y + other.y }
    }
}

/// A linear map with an offset: `[a, b, c, d, e, f]` as in `matrix()`.
type Matrix = [f32; 6];

const IDENTITY: Matrix = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0];

fn multiply(left: Matrix, right: Matrix) -> Matrix {
    let column = |x: f32, y: f32| [left[0] * x + left[2] * y, left[1] * x + left[3] * y];
    let (first, second) = (column(right[0], right[1]), column(right[2], right[3]));
    let offset = column(right[4], right[5]);
    [first[0], first[1], second[0], second[1], offset[0] + left[4], offset[1] + left[5]]
}

/// The smaller singular value of the linear part.
fn smaller_scale([a, b, c, d, ..]: Matrix) -> f32 {
    let squares = a * a + b * b + c * c + d * d;
    let determinant = a * d - b * c;
    let root = (squares * squares - 4.0 * determinant * determinant).max(0.0).sqrt();
    ((squares - root) / 2.0).max(0.0).sqrt()
}

fn to_transform(matrix: Matrix) -> Transform {
    if matrix.iter().any(|part| part.is_nan()) {
        return Transform { scale: f32::NAN, ..Transform::NONE };
    }
    Transform { scale: smaller_scale(matrix), x: matrix[4], y: matrix[5] }
}

/// Parses the property `transform`.
pub(in crate::html) fn functions(input: &mut Parser<'_>, units: Units) -> Option<Transform> {
    if input.try_parse(|input| input.expect_ident_matching("none")).is_ok() {
        return Some(Transform::NONE);
    }
    let mut matrix = IDENTITY;
    let mut any = false;
    while let Ok(token) = input.next().cloned() {
        let Token::Function(name) = token else { return None };
        let step = input.parse_nested_block(|input| function(&name.to_ascii_lowercase(), input, units)).ok()?;
        matrix = multiply(matrix, step);
        any = true;
    }
    any.then(|| to_transform(matrix))
}

type TransformList<T> = Result<T, ParseError<()>>;

/// Parses comma-separated numbers.
fn numbers(input: &mut Parser<'_>, units: Units) -> TransformList<Vec<f32>> {
    input.parse_comma_separated(|input| number_or_percentage(input, Units { percent: 1.0, ..units }))
}

fn px(input: &mut Parser<'_>, units: Units) -> TransformList<f32> {
    length(input, Units { quirks: false, ..units }).ok_or_else(ParseError::unexpected_token)
}

fn function(name: &str, input: &mut Parser<'_>, units: Units) -> TransformList<Matrix> {
    let across = Units { percent: VIEWPORT_WIDTH, ..units };
    // The height of a box is not known. A quarter of the viewport's width is a cautious guess.
    let down = Units { percent: VIEWPORT_WIDTH / 4.0, ..units };
    Ok(match name {
        "scale" | "scale3d" | "scalex" | "scaley" | "scalez" => scale_matrix(name, &numbers(input, units)?)?,
        "translate" | "translate3d" => {
            let x = px(input, across)?;
            let y = if input.try_parse(Parser::expect_comma).is_ok() { px(input, down)? } else { 0.0 };
            let z = if input.try_parse(Parser::expect_comma).is_ok() { px(input, units)? } else { 0.0 };
            [1.0 + depth_factor(z), 0.0, 0.0, 1.0, x, y]
        }
        "translatex" => [1.0, 0.0, 0.0, 1.0, px(input, across)?, 0.0],
        "translatey" => [1.0, 0.0, 0.0, 1.0, 0.0, px(input, down)?],
        "translatez" | "perspective" => [1.0 + depth_factor(px(input, units)?), 0.0, 0.0, 1.0, 0.0, 0.0],
        "rotate" | "rotatez" => rotation(angle(input, units)?),
        // Text seen from behind is invisible or mirrored.
        "rotatex" => [1.0, 0.0, 0.0, angle(input, units)?.cos().max(0.0), 0.0, 0.0],
        "rotatey" => [angle(input, units)?.cos().max(0.0), 0.0, 0.0, 1.0, 0.0, 0.0],
        "skew" | "skewx" | "skewy" => skew(&input.parse_comma_separated(|input| angle(input, units))?),
        "matrix" => Matrix::try_from(numbers(input, units)?).or(Err(ParseError::unexpected_token()))?,
        "matrix3d" | "rotate3d" => {
            while input.next().is_ok() {}
            [f32::NAN; 6]
        }
        _ => return Err(ParseError::unexpected_token()),
    })
}

fn scale_matrix(name: &str, values: &[f32]) -> TransformList<Matrix> {
    let (x, y) = match (name, values) {
        ("scale", [both]) => (*both, *both),
        ("scale", [x, y]) | ("scale3d", [x, y, _]) => (*x, *y),
        ("scalex", [x]) => (*x, 1.0),
        ("scaley", [y]) => (1.0, *y),
        ("scalez", [_]) => (1.0, 1.0),
        _ => return Err(ParseError::unexpected_token()),
    };
    Ok([x, 0.0, 0.0, y, 0.0, 0.0])
}

/// Perspective is not computed: NaN for text that moves along the z axis.
fn depth_factor(z: f32) -> f32 {
    if z == 0.0 { 0.0 } else { f32::NAN }
}

/// An angle in radians.
fn angle(input: &mut Parser<'_>, units: Units) -> TransformList<f32> {
    match quantity(input, units)? {
        Quantity::Angle(angle) => Ok(angle.to_radians()),
        Quantity::Number(0.0) => Ok(0.0),
        Quantity::Px(angle) if angle.is_nan() => Ok(angle),
        _ => Err(ParseError::unexpected_token()),
    }
}

fn rotation(angle: f32) -> Matrix {
    [angle.cos(), angle.sin(), -angle.sin(), angle.cos(), 0.0, 0.0]
}

/// Text skewed by up to 60 degrees is readable, so it counts as unchanged. Steeper text counts as collapsed.
fn skew(angles: &[f32]) -> Matrix {
    let steep = angles.iter().any(|angle| !(angle.cos().abs() >= 0.5));
    if steep { [0.0; 6] } else { IDENTITY }
}

/// Parses the property `scale`.
pub(in crate::html) fn scale(input: &mut Parser<'_>, units: Units) -> Option<Transform> {
    if input.try_parse(|input| input.expect_ident_matching("none")).is_ok() {
        return Some(Transform::NONE);
    }
    let x = number_or_percentage(input, units).ok()?;
    let y = input.try_parse(|input| number_or_percentage(input, units)).unwrap_or(x);
    while input.try_parse(|input| number_or_percentage(input, units)).is_ok() {}
    Some(to_transform([x, 0.0, 0.0, y, 0.0, 0.0]))
}

/// Parses the property `rotate`. A rotation about an axis in the plane may show only the edge of the text.
pub(in crate::html) fn rotate(input: &mut Parser<'_>, units: Units) -> Option<Transform> {
    let mut around_axis = false;
    let mut turned = 0.0;
    let mut any = false;
    while let Ok(token) = input.next().cloned() {
        any = true;
        match token {
            Token::Ident(word) if word.eq_ignore_ascii_case("x") || word.eq_ignore_ascii_case("y") => {
                around_axis = true
            }
            Token::Ident(word) if word.eq_ignore_ascii_case("z") || word.eq_ignore_ascii_case("none") => {}
            Token::Number { .. } => around_axis = true,
            Token::Dimension { value, unit, .. } => {
                let text = format!("{value}{unit}");
                turned = quantity(&mut Parser::new(&text), units).ok()?.number();
            }
            _ => return None,
        }
    }
    let scale = if around_axis { f32::to_radians(turned).cos().abs() } else { 1.0 };
    any.then_some(Transform { scale, ..Transform::NONE })
}

/// Parses the property `translate`.
pub(in crate::html) fn translate(input: &mut Parser<'_>, units: Units) -> Option<Transform> {
    if input.try_parse(|input| input.expect_ident_matching("none")).is_ok() {
        return Some(Transform::NONE);
    }
    let x = px(input, Units { percent: VIEWPORT_WIDTH, ..units }).ok()?;
    let down = Units { percent: VIEWPORT_WIDTH / 4.0, ..units };
    let y = input.try_parse(|input| px(input, down)).unwrap_or(0.0);
    let z = input.try_parse(|input| px(input, units)).unwrap_or(0.0);
    Some(Transform { x, y, scale: 1.0 + depth_factor(z) })
}
