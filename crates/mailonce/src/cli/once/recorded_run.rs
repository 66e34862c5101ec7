//! Output and exit code of a command, as the claim stores them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::claims::MAX_RESULT_BYTES;
use serde_json::{Value, json};
use std::io::Write as _;

use crate::cli::printer::print_stderr;

/// Bytes of each output that are recorded.
pub(super) const MAX_OUTPUT_BYTES: usize = 1_000_000;

/// What a command printed, and its exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedRun {
    /// Its exit code; 128 and the number of the signal that ended it.
    pub(super) exit_code: u8,
    /// The first bytes of its output.
    pub(super) stdout: Vec<u8>,
    /// The first bytes of its error output.
    pub(super) stderr: Vec<u8>,
    /// Whether it printed more than that.
    pub(super) is_truncated: bool,
}

impl RecordedRun {
    /// The result of the claim: the output as text if it is text, else as base 64.
    pub(super) fn to_result(&self) -> Value {
        let of = |stdout: Value, stderr: Value, encoding: &str| {
            json!({
                "exit_code": self.exit_code, "stdout": stdout, "stderr": stderr, "encoding": encoding,
                "truncated": self.is_truncated,
            })
        };
        if let (Ok(stdout), Ok(stderr)) = (str::from_utf8(&self.stdout), str::from_utf8(&self.stderr)) {
            let result = of(stdout.into(), stderr.into(), "utf-8");
            // Text of control characters grows in JSON. A result that is too large would be left out, exit code included.
            if result.to_string().len() <= MAX_RESULT_BYTES {
                return result;
            }
        }
        of(STANDARD.encode(&self.stdout).into(), STANDARD.encode(&self.stderr).into(), "base64")
    }

    /// Reads the result of a claim. `None` if `once` did not write it.
    pub(super) fn from_result(result: &Value) -> Option<Self> {
        let is_base64 = result["encoding"] == "base64";
        let output = |name: &str| {
            let text = result[name].as_str()?;
            if is_base64 { STANDARD.decode(text).ok() } else { Some(text.as_bytes().to_vec()) }
        };
        Some(Self {
            exit_code: u8::try_from(result["exit_code"].as_u64()?).ok()?,
            stdout: output("stdout")?,
            stderr: output("stderr")?,
            is_truncated: result["truncated"] == true,
        })
    }

    /// Prints the output again. A closed output is not an error of the command that ran.
    pub(super) fn print(&self) {
        let (mut stdout, mut stderr) = (std::io::stdout(), std::io::stderr());
        let _closed = stdout.write_all(&self.stdout).and_then(|()| stdout.flush());
        let _closed = stderr.write_all(&self.stderr).and_then(|()| stderr.flush());
        if self.is_truncated {
            let limit = MAX_OUTPUT_BYTES;
            print_stderr(&format!("mailonce once: the command printed more than {limit} bytes; the rest was not kept"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_is_read_back() {
        let control = vec![1; MAX_OUTPUT_BYTES];
        for (stdout, encoding) in [(b"text\n".to_vec(), "utf-8"), (vec![0xff, 0], "base64"), (control, "base64")] {
            let stderr = stdout.clone();
            let run = RecordedRun { exit_code: 75, stdout, stderr, is_truncated: true };
            let result = run.to_result();
            assert_eq!(result["encoding"], encoding);
            assert!(result.to_string().len() <= MAX_RESULT_BYTES);
            assert_eq!(RecordedRun::from_result(&result), Some(run));
        }
        assert_eq!(RecordedRun::from_result(&json!({ "invoice": 7 })), None);
        assert_eq!(RecordedRun::from_result(&Value::Null), None);
    }
}
