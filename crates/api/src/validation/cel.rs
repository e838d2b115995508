//! Syntax check of expressions in CEL, the language of conditions: the grammar alone, not the
//! meaning of names.

/// The maximum nesting depth of an expression, as in CEL's own parser.
const MAX_DEPTH: usize = 250;

/// Words that are not names.
const RESERVED: [&str; 16] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// One operator, word, number or text of an expression.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A name, or a keyword such as `in`.
    Word(String),
    /// A number or a text.
    Literal,
    /// An operator or a bracket.
    Sign(&'static str),
}

/// All operators and brackets, the longer ones first.
const SIGNS: [&str; 26] = [
    "&&", "||", "<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",",
    "(", ")", "[", "]", "{", "}", "@", "$",
];

/// Checks an expression.
///
/// # Errors
/// With what is wrong and where.
pub fn check(text: &str) -> Result<(), String> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    parser.expression()?;
    match parser.tokens.get(parser.at) {
        None => Ok(()),
        Some((place, _)) => Err(format!("unexpected text at {:?}", shown(text, *place))),
    }
}

/// The first characters of a text from a place, for messages.
fn shown(text: &str, place: usize) -> String {
    text.get(place..)
        .unwrap_or_default()
        .chars()
        .take(20)
        .collect()
}

/// The tokens of a text with their places.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let blank = rest.len() - rest.trim_start().len();
        if blank > 0 {
            at += blank;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(length) = text_length(rest) {
            let length = length
                .ok_or_else(|| format!("the string at {:?} is not terminated", shown(text, at)))?;
            found.push((at, Token::Literal));
            at += length;
        } else if rest.starts_with(|sign: char| sign.is_ascii_digit()) {
            let length = number_length(rest);
            found.push((at, Token::Literal));
            at += length;
        } else if rest.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_') {
            let length = rest
                .find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_')
                .unwrap_or(rest.len());
            let (word, _) = rest.split_at(length);
            found.push((at, Token::Word(word.to_owned())));
            at += length;
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            found.push((at, Token::Sign(sign)));
            at += sign.len();
        } else {
            return Err(format!("unexpected character at {:?}", shown(text, at)));
        }
    }

    Ok(found)
}

/// The length of the quoted text at the start, with its prefix; `Some(None)` if it does not end,
/// `None` without quoted text.
fn text_length(rest: &str) -> Option<Option<usize>> {
    let prefix = rest
        .find(|sign: char| !"rRbB".contains(sign))
        .filter(|length| *length <= 2)?;
    let quoted = rest.get(prefix..)?;
    let quote = ["\"\"\"", "'''", "\"", "'"]
        .into_iter()
        .find(|quote| quoted.starts_with(quote))?;
    let is_raw = rest.get(..prefix)?.contains(['r', 'R']);

    let mut at = quote.len();
    while let Some(left) = quoted.get(at..).filter(|left| !left.is_empty()) {
        if left.starts_with(quote) {
            return Some(Some(prefix + at + quote.len()));
        }
        let mut signs = left.chars();
        let sign = signs.next()?;
        if sign == '\n' && quote.len() == 1 {
            return Some(None);
        }
        at += sign.len_utf8();
        if sign == '\\' && !is_raw {
            at += signs.next().map_or(0, char::len_utf8);
        }
    }

    Some(None)
}

/// The length of the number at the start.
fn number_length(rest: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();

    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        let length = 2 + hex.bytes().take_while(u8::is_ascii_hexdigit).count();
        return length
            + usize::from(
                rest.get(length..)
                    .is_some_and(|rest| rest.starts_with(['u', 'U'])),
            );
    }

    let mut length = digits(rest);
    let after = |length: usize| rest.split_at(length).1;
    if let Some(fraction) = after(length)
        .strip_prefix('.')
        .map(digits)
        .filter(|count| *count > 0)
    {
        length += 1 + fraction;
    }

    if let Some(exponent) = after(length).strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits(unsigned) > 0 {
            length += 1 + (exponent.len() - unsigned.len()) + digits(unsigned);
        }
    }

    length + usize::from(after(length).starts_with(['u', 'U']))
}

/// Reads tokens by CEL's grammar.
struct Parser {
    /// The tokens with their places.
    tokens: Vec<(usize, Token)>,
    /// The index of the next token.
    at: usize,
    /// The current nesting depth.
    depth: usize,
}

impl Parser {
    /// Consumes the next token if it is one of these signs.
    fn take(&mut self, signs: &[&str]) -> bool {
        let comes = matches!(
            self.tokens.get(self.at),
            Some((_, Token::Sign(sign))) if signs.contains(sign)
        );
        self.at += usize::from(comes);
        comes
    }

    /// Consumes a sign that must be next.
    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.take(&[sign]) {
            Ok(())
        } else {
            Err(format!("expected {sign:?} {}", self.place()))
        }
    }

    /// The position of the parser, in words.
    fn place(&self) -> String {
        match self.tokens.get(self.at) {
            Some((place, token)) => format!("at character {place}, before {token:?}"),
            None => "at the end".to_owned(),
        }
    }

    /// A whole expression.
    fn expression(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("nesting exceeds {MAX_DEPTH} levels"));
        }
        self.operands()?;
        if self.take(&["?"]) {
            self.operands()?;
            self.expect(":")?;
            self.expression()?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Operands with operators between them. Precedence does not affect whether the expression is
    /// valid.
    fn operands(&mut self) -> Result<(), String> {
        loop {
            self.unary()?;
            let is_in =
                matches!(self.tokens.get(self.at), Some((_, Token::Word(word))) if word == "in");
            self.at += usize::from(is_in);
            let operators = [
                "&&", "||", "<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "%",
            ];
            if !is_in && !self.take(&operators) {
                return Ok(());
            }
        }
    }

    /// A member with unary operators before it.
    fn unary(&mut self) -> Result<(), String> {
        if self.take(&["!"]) {
            while self.take(&["!"]) {}
        } else {
            while self.take(&["-"]) {}
        }

        self.primary()?;

        loop {
            if self.take(&["."]) {
                self.word()?;
                if self.take(&["("]) {
                    self.list(")", Self::expression)?;
                } else if self.take(&["{"]) {
                    self.list("}", Self::entry)?;
                }
            } else if self.take(&["["]) {
                self.expression()?;
                self.expect("]")?;
            } else {
                return Ok(());
            }
        }
    }

    /// A name, a literal, or an expression in brackets.
    fn primary(&mut self) -> Result<(), String> {
        if self.take(&["("]) {
            self.expression()?;
            return self.expect(")");
        }

        if self.take(&["["]) {
            return self.list("]", Self::expression);
        }

        if self.take(&["{"]) {
            return self.list("}", Self::entry);
        }

        if matches!(self.tokens.get(self.at), Some((_, Token::Literal))) {
            self.at += 1;
            return Ok(());
        }

        self.take(&["."]);
        if matches!(
            self.tokens.get(self.at),
            Some((_, Token::Word(word))) if RESERVED.contains(&word.as_str())
        ) {
            return Err(format!("unexpected reserved word {}", self.place()));
        }
        self.word()?;
        if self.take(&["("]) {
            return self.list(")", Self::expression);
        }

        if self.take(&["{"]) {
            self.list("}", Self::entry)
        } else {
            Ok(())
        }
    }

    fn word(&mut self) -> Result<(), String> {
        match self.tokens.get(self.at) {
            Some((_, Token::Word(word))) if word != "in" => {
                self.at += 1;
                Ok(())
            }
            Some(_) | None => Err(format!("expected a name or a value {}", self.place())),
        }
    }

    /// A key with its value.
    fn entry(&mut self) -> Result<(), String> {
        self.expression()?;
        self.expect(":")?;
        self.expression()
    }

    /// Items separated by commas, up to an end.
    fn list(&mut self, end: &str, item: fn(&mut Self) -> Result<(), String>) -> Result<(), String> {
        while !self.take(&[end]) {
            item(self)?;
            if !self.take(&[","]) {
                return self.expect(end);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_cel_is_accepted() {
        for text in [
            "response.code >= 400",
            "!has(request.headers['x']) && (a || -b in [1, 2u, 0xff, 1.5e3,]) ? {'a': 1} : Type{f: r'\\'}",
            "connection.mtls && request.url_path.contains('v1beta3')",
            ".a.b(c)[d].e // with a remark",
            "\"\"\"long\ntext\"\"\" == b'\\'' ",
            "'ä' == x.y",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn invalid_cel_is_rejected() {
        for text in [
            "", "a &&& b", "a b", "(a", "[1", "'open", "a.", "if", "1 +", "a ? b", "#", "f(a b)",
            "in", "= a",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
        assert!(check(&"(".repeat(10_000)).is_err());
    }
}
