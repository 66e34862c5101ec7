//! Detects text that addresses a model instead of a person. It is flagged and counted, never obeyed.

use crate::{string_enum::string_enum, unicode};

string_enum! {
    /// A sign of prompt injection.
    Flag {
        /// Phrases that instruct a model.
        Instruction = "instruction",
        /// Markers that separate the speakers of a chat.
        RoleMarker = "role_marker",
        /// Text that imitates the view's marker lines or a tool result.
        FenceLookalike = "fence_lookalike",
        /// Instructions in text that the reader would not have seen.
        HiddenInstruction = "hidden_instruction",
        /// More invisible characters than any layout needs.
        InvisibleText = "invisible_text",
        /// Characters that change the text direction.
        Bidi = "bidi",
        /// Unicode tag characters, which can spell invisible text.
        TagCharacters = "tag_characters",
        /// Visible text that is hidden from screen readers (`aria-hidden`).
        AriaHidden = "aria_hidden",
    }
}

/// Instructions, in lower case.
const INSTRUCTION_PHRASES: &[&str] = &[
    "ignore previous instructions",
    "ignore all previous",
    "ignore the previous",
    "ignore your previous",
    "ignore any previous",
    "ignore prior instructions",
    "ignore the above",
    "ignore all instructions",
    "ignore your instructions",
    "ignore everything above",
    "disregard previous",
    "disregard all",
    "disregard the above",
    "disregard your",
    "forget previous instructions",
    "forget all previous",
    "forget your instructions",
    "forget everything",
    "override your instructions",
    "new instructions:",
    "updated instructions:",
    "system prompt",
    "your instructions are",
    "you are now",
    "you must now",
    "act as if you",
    "pretend to be",
    "pretend you are",
    "as an ai",
    "dear ai",
    "hey ai",
    "attention ai",
    "ai assistant",
    "ai agent",
    "language model",
    "llm",
    "chatgpt",
    "developer mode",
    "jailbreak",
    "do not tell the user",
    "don't tell the user",
    "without telling the user",
    "do not inform the user",
    "do not mention this",
    "reveal your",
    "print your prompt",
    "repeat your prompt",
    "forward all",
    "forward this email to",
    "send all emails",
    "exfiltrate",
    "call the tool",
    "use the tool",
    "run the following command",
    "execute the following",
    "execute this command",
    "ignoriere alle",
    "ignoriere die vorherigen",
    "ignoriere vorherige",
    "vergiss alle",
    "ignorez les instructions",
    "ignore les instructions",
    "oubliez les instructions",
    "ignora las instrucciones",
    "ignora todas las",
    "olvida las instrucciones",
    "ignore as instruções",
    "ignore todas as",
    "ignora le istruzioni",
    "ignora tutte le",
    "negeer alle",
    "negeer de vorige",
    "zignoruj poprzednie",
    "zignoruj wszystkie",
    "önceki talimatları",
    "игнорируй предыдущие",
    "игнорируй все",
    "забудь все",
    "以前の指示を無視",
    "これまでの指示を無視",
    "指示を無視",
    "忽略之前",
    "忽略以上",
    "忽略所有",
    "無視之前",
    "忽略先前",
    "이전 지시",
    "지시를 무시",
    "تجاهل التعليمات",
    "تجاهل جميع",
];
/// Chat markers, in lower case. Those with a colon count only at the start of a line.
const ROLE_MARKERS: &[&str] = &[
    "<|im_start|>",
    "<|im_end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|endoftext|>",
    "[inst]",
    "[/inst]",
    "<<sys>>",
    "<</sys>>",
    "### instruction",
    "### system",
    "### response",
    "<system>",
    "</system>",
    "<assistant>",
    "</assistant>",
    "<tool_call>",
    "</tool_call>",
    "<function_call",
    "<tool_result",
    "begin system",
    "[system]",
    "\n\nhuman:",
    "\n\nassistant:",
];
const SPEAKER_PREFIXES: &[&str] = &["system:", "assistant:", "developer:", "system message:", "tool:", "function:"];
const FENCE_LOOKALIKES: &[&str] = &[
    "<<<",
    ">>>",
    "untrusted mail",
    "end of untrusted",
    "end of email",
    "end of mail",
    "end of message",
    "[end]",
    "begin trusted",
    "</untrusted",
    "<untrusted",
    "```system",
];

/// Scans the visible and the hidden text.
pub fn find_injections(subject: &str, text: &str, hidden: &str) -> Vec<(Flag, usize)> {
    let visible = format!("{subject}\n{text}");
    let plain = normalize(&visible);
    let count = |words: &[&str], text: &str| words.iter().map(|word| text.matches(word).count()).sum::<usize>();
    let speakers = plain
        .lines()
        .filter(|line| SPEAKER_PREFIXES.iter().any(|speaker| line.trim_start().starts_with(speaker)))
        .count();
    let count_chars = |test: fn(char) -> bool| visible.chars().filter(|c| test(*c)).count();
    let invisible = count_chars(unicode::is_invisible);
    let found = [
        (Flag::Instruction, count(INSTRUCTION_PHRASES, &plain)),
        (Flag::RoleMarker, count(ROLE_MARKERS, &plain) + speakers),
        (Flag::FenceLookalike, count(FENCE_LOOKALIKES, &plain)),
        (Flag::HiddenInstruction, {
            let hidden = self::normalize(hidden);
            count(INSTRUCTION_PHRASES, &hidden) + count(ROLE_MARKERS, &hidden)
        }),
        (Flag::InvisibleText, if invisible > 200 { invisible } else { 0 }),
        (Flag::Bidi, count_chars(|c| matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'))),
        (Flag::TagCharacters, count_chars(|c| matches!(c, '\u{E0020}'..='\u{E007F}'))),
    ];
    found.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Normalizes text: lower case, single spaces, and no invisible characters that break up words.
fn normalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in
        text.chars().filter(|c| !unicode::is_invisible(*c)).map(unicode::fold_to_ascii).flat_map(char::to_lowercase)
    {
        if c != ' ' && c != '\t' {
            out.push(c);
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
    }
    out
}
