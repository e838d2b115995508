//! The tokens of a Lua script, as in LuaJIT.

use super::LuaFault;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Keyword,
    Text,
    Number,
    Sign,
    /// The end of the script.
    End,
}

/// A token of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    /// Its source text.
    pub(super) text: &'a str,
    /// The line on which it ends.
    pub(super) line: usize,
}

/// The keywords of the language. `goto` is one only before a name.
const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// Signs, longer ones before their prefixes.
const SIGNS: [&str; 29] = [
    "...", "..", "==", "~=", "<=", ">=", "::", "+", "-", "*", "/", "%", "^", "#", "(", ")", "{",
    "}", "[", "]", ";", ":", ",", ".", "=", "<", ">", "&", "|",
];

/// Splits a script into tokens.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    /// The unread rest of the script.
    rest: &'a str,
    /// The line on which the rest starts.
    line: usize,
}

impl<'a> Lexer<'a> {
    /// A lexer at the start of a script. A byte order mark and a first line that starts with `#`
    /// are skipped.
    pub(super) fn new(script: &'a str) -> Self {
        let script = script.strip_prefix('\u{feff}').unwrap_or(script);
        let rest = if script.starts_with('#') {
            script.find('\n').map_or("", |end| tail(script, end))
        } else {
            script
        };
        Self { rest, line: 1 }
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, LuaFault> {
        self.skip_blank()?;
        let Some(first) = self.rest.chars().next() else {
            return Ok(Token {
                kind: Kind::End,
                text: "",
                line: self.line,
            });
        };

        if is_name_part(first) && !first.is_ascii_digit() {
            let text = self.take_while(is_name_part);
            let kind = if KEYWORDS.contains(&text) {
                Kind::Keyword
            } else {
                Kind::Name
            };
            return Ok(Token {
                kind,
                text,
                line: self.line,
            });
        }

        let after_point = self
            .rest
            .strip_prefix('.')
            .and_then(|rest| rest.chars().next());
        if first.is_ascii_digit() || after_point.is_some_and(|next| next.is_ascii_digit()) {
            return self.number();
        }

        if matches!(first, '"' | '\'') {
            return self.quoted(first);
        }

        if first == '[' && (self.rest.starts_with("[[") || self.rest.starts_with("[=")) {
            return self.bracketed("a string");
        }

        match SIGNS.into_iter().find(|sign| self.rest.starts_with(sign)) {
            Some(sign) => Ok(self.token(Kind::Sign, sign.len())),
            None => Err(self.fault(format!("unexpected character {first:?}"))),
        }
    }

    /// Whether the previous token is followed by `=`.
    pub(super) fn is_assigned(&self) -> bool {
        let mut ahead = Self {
            rest: self.rest,
            line: self.line,
        };
        ahead
            .next()
            .is_ok_and(|token| token.kind == Kind::Sign && token.text == "=")
    }

    /// An error on this line.
    fn fault(&self, reason: impl Into<String>) -> LuaFault {
        LuaFault {
            line: self.line,
            reason: reason.into(),
        }
    }

    /// Consumes a token of this length in bytes, which may span lines.
    fn token(&mut self, kind: Kind, length: usize) -> Token<'a> {
        let text = self.rest.get(..length).unwrap_or(self.rest);
        self.rest = tail(self.rest, length);
        self.line += text.matches('\n').count();
        Token {
            kind,
            text,
            line: self.line,
        }
    }

    /// Consumes characters while they match.
    fn take_while(&mut self, part: impl Fn(char) -> bool) -> &'a str {
        let length = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        self.token(Kind::Name, length).text
    }

    /// Skips whitespace and comments.
    fn skip_blank(&mut self) -> Result<(), LuaFault> {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c'));
            let Some(comment) = self.rest.strip_prefix("--") else {
                return Ok(());
            };
            if level(comment).is_some() {
                self.rest = comment;
                self.bracketed("a comment")?;
            } else {
                self.take_while(|c| c != '\n');
            }
        }
    }

    fn number(&mut self) -> Result<Token<'a>, LuaFault> {
        let bytes = self.rest.as_bytes();
        let is_hex = self.rest.starts_with("0x") || self.rest.starts_with("0X");
        let exponent = if is_hex { b"pP" } else { b"eE" };
        let mut length = 0;
        let mut before = b' ';

        for &byte in bytes {
            let is_part =
                byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_' || byte >= 0x80;
            let is_sign = matches!(byte, b'+' | b'-') && exponent.contains(&before);
            if !(is_part || is_sign) {
                break;
            }
            length += 1;
            before = byte;
        }

        let token = self.token(Kind::Number, length);
        if is_number(token.text) {
            Ok(token)
        } else {
            Err(self.fault(format!("{:?} is not a number", token.text)))
        }
    }

    /// A string in quotes.
    fn quoted(&mut self, quote: char) -> Result<Token<'a>, LuaFault> {
        let start = self.rest;
        let mut rest = tail(start, 1);
        let unfinished = |lexer: &Self| lexer.fault("a string is not closed");

        loop {
            let Some(next) = rest.chars().next() else {
                return Err(unfinished(self));
            };
            rest = tail(rest, next.len_utf8());
            match next {
                '\n' | '\r' => return Err(unfinished(self)),
                '\\' => {
                    rest = after_escape(rest)
                        .ok_or_else(|| self.fault("a string has an invalid escape sequence"))?;
                }
                _ if next == quote => return Ok(self.token(Kind::Text, start.len() - rest.len())),
                _ => {}
            }
        }
    }

    /// A string or comment in long brackets.
    fn bracketed(&mut self, what: &str) -> Result<Token<'a>, LuaFault> {
        let Some(level) = level(self.rest) else {
            return Err(self.fault("a long bracket is malformed"));
        };
        let close = format!("]{}]", "=".repeat(level));
        match tail(self.rest, level + 2).find(&close) {
            Some(length) => Ok(self.token(Kind::Text, 2 * (level + 2) + length)),
            None => Err(self.fault(format!("{what} in long brackets is not closed"))),
        }
    }
}

/// The rest of a text after this number of bytes.
fn tail(text: &str, from: usize) -> &str {
    text.get(from..).unwrap_or_default()
}

/// Whether a character can be part of a name.
fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii()
}

/// The number of `=` in the long bracket at the start of a text.
fn level(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let equals = inner.len() - inner.trim_start_matches('=').len();
    tail(inner, equals).starts_with('[').then_some(equals)
}

/// The text after the escape sequence at its start, whose backslash is already consumed.
fn after_escape(text: &str) -> Option<&str> {
    let first = text.chars().next()?;
    let rest = tail(text, first.len_utf8());

    match first {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' | '"' | '\'' | '\n' => Some(rest),
        '\r' => Some(rest.strip_prefix('\n').unwrap_or(rest)),
        'z' => Some(rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b')),
        'x' => {
            let (digits, rest) = rest.split_at_checked(2)?;
            digits
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
                .then_some(rest)
        }
        'u' => {
            let (digits, rest) = rest.strip_prefix('{')?.split_once('}')?;
            (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .then_some(rest)
        }
        '0'..='9' => {
            let length = text.bytes().take(3).take_while(u8::is_ascii_digit).count();
            let (digits, rest) = text.split_at_checked(length)?;
            digits.parse::<u8>().is_ok().then_some(rest)
        }
        _ => None,
    }
}

/// Whether a text is a number, in any base and with any of LuaJIT's suffixes.
fn is_number(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let body = ["ull", "ll", "i"]
        .into_iter()
        .find_map(|suffix| lower.strip_suffix(suffix))
        .unwrap_or(&lower);
    if let Some(binary) = body.strip_prefix("0b") {
        return !binary.is_empty() && binary.bytes().all(|byte| matches!(byte, b'0' | b'1'));
    }

    let (digits, exponent, is_digit): (_, _, fn(&u8) -> bool) = match body.strip_prefix("0x") {
        Some(hex) => (hex, 'p', u8::is_ascii_hexdigit),
        None => (body, 'e', u8::is_ascii_digit),
    };
    let (mantissa, power) = match digits.split_once(exponent) {
        Some((mantissa, power)) => (
            mantissa,
            Some(power.strip_prefix(['+', '-']).unwrap_or(power)),
        ),
        None => (digits, None),
    };

    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = |part: &str, is_digit: fn(&u8) -> bool| part.as_bytes().iter().all(is_digit);
    !(whole.is_empty() && fraction.is_empty())
        && all(whole, is_digit)
        && all(fraction, is_digit)
        && power.is_none_or(|power| !power.is_empty() && all(power, u8::is_ascii_digit))
}
