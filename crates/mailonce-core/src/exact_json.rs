//! JSON values that are passed on as text, because parsing rounds numbers: an integer over 64 bits or a decimal with more
//! than 17 digits would reach the reader as another number.

use serde::Serialize;
use serde_json::{Value, value::RawValue};

/// A JSON value as compact text. Every number keeps the digits that it was written with.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct ExactJson(Box<RawValue>);

impl ExactJson {
    /// Reads JSON. Refuses what a reader could not parse, such as half of a surrogate pair.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<Value>(text)?;
        RawValue::from_string(rewrite(text, |number, out| out.push_str(number))?).map(Self)
    }

    /// Reads what [`Self::as_str`] returned.
    pub fn from_stored(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// The text, without white space.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// A text that is equal for equal values: fields are sorted, and numbers are written in one way.
    pub fn canonical(&self) -> Result<String, serde_json::Error> {
        let marked = rewrite(self.as_str(), |number, out| {
            if is_kept(number) {
                out.push_str(number);
                return;
            }
            // The parser would round it, so it is compared as text. PostgreSQL allows no string with this prefix.
            out.push_str("\"\\u0000");
            out.push_str(&canonical_number(number));
            out.push('"');
        })?;
        // The maps of serde_json are sorted.
        serde_json::from_str::<Value>(&marked).map(|value| value.to_string())
    }
}

/// Copies valid JSON without white space and with the shortest escapes, and each number by `write_number`.
fn rewrite(text: &str, write_number: impl Fn(&str, &mut String)) -> Result<String, serde_json::Error> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            '-' | '0'..='9' => rest.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        match first {
            ' ' | '\n' | '\r' | '\t' => {}
            '-' | '0'..='9' => write_number(token, &mut out),
            '"' if token.contains('\\') => {
                out.push_str(&serde_json::to_string(&serde_json::from_str::<String>(token)?)?);
            }
            _ => out.push_str(token),
        }
    }
    Ok(out)
}

/// The length of the string literal at the start of a text, with its quotes.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |at| at + 2)
}

/// Whether parsing keeps the value of a number.
fn is_kept(number: &str) -> bool {
    let parsed = serde_json::from_str::<Value>(number).map(|value| value.to_string());
    parsed.is_ok_and(|shown| canonical_number(&shown) == canonical_number(number))
}

/// A number as its significant digits and a power of ten. One whose exponent is out of range stays as it is written.
fn canonical_number(number: &str) -> String {
    let (sign, unsigned) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{integer}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    let trailing_zeros = digits.len() - digits.trim_end_matches('0').len();
    let shift = i64::try_from(trailing_zeros).ok().zip(i64::try_from(fraction.len()).ok());
    let power = exponent.parse::<i64>().ok().zip(shift).and_then(|(exponent, (zeros, decimals))| {
        exponent.checked_add(zeros).and_then(|power| power.checked_sub(decimals))
    });
    power.map_or_else(|| number.to_owned(), |power| format!("{sign}{significant}e{power}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        ExactJson::parse(text).unwrap().canonical().unwrap()
    }

    #[test]
    fn numbers_keep_their_digits_and_white_space_goes() {
        for (text, kept) in [
            (
                " { \"b\" : 123456789012345678901234567890 , \"a\" : [ 0.1234567890123456789 , 1.10 ] } ",
                "{\"b\":123456789012345678901234567890,\"a\":[0.1234567890123456789,1.10]}",
            ),
            ("-1E+2", "-1E+2"),
            ("\"a \\\"1 2\\\" \\u00e9 \\\\\"", "\"a \\\"1 2\\\" é \\\\\""),
            ("[true, false, null, \"\", {}]", "[true,false,null,\"\",{}]"),
        ] {
            assert_eq!(ExactJson::parse(text).unwrap().as_str(), kept);
            assert_eq!(serde_json::to_string(&ExactJson::from_stored(kept.to_owned()).unwrap()).unwrap(), kept);
        }
    }

    #[test]
    fn what_a_reader_cannot_parse_is_refused() {
        for text in ["", "{", "\"\\ud83d\"", "1e999", "[1,]", "01"] {
            assert!(ExactJson::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn equal_values_have_one_canonical_text() {
        for (one, other) in [
            ("{\"a\": 1, \"b\": 2.50}", "{\"b\": 2.5, \"a\": 1}"),
            ("12345678901234567890123", "12345678901234567890123.00"),
            ("[100e20, 12345678901234567890.1]", "[1e22, 1234567890123456789.01e1]"),
            ("-0.0", "-0.00"),
        ] {
            assert_eq!(canonical(one), canonical(other));
        }
        for (one, other) in [
            ("12345678901234567890123", "12345678901234567890124"),
            ("-12345678901234567890123", "12345678901234567890123"),
            ("0.12345678901234567891", "0.12345678901234567892"),
            ("12345678901234567890123", "\"12345678901234567890123\""),
        ] {
            assert_ne!(canonical(one), canonical(other));
        }
    }

    #[test]
    fn values_that_parsing_keeps_have_the_text_of_the_parsed_value() {
        for text in
            ["{\"b\": [1, 2.5, 1e3, -7, 18446744073709551615], \"a\": \"\\n1\"}", "0.1", "1.7976931348623157e308"]
        {
            let parsed: Value = serde_json::from_str(text).unwrap();
            assert_eq!(canonical(text), parsed.to_string());
        }
    }
}
