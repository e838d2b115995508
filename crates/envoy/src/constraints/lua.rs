//! Lua syntax of scripts, as parsed by LuaJIT: Envoy rejects the whole listener or route because of
//! an invalid script.
//!
//! Errors that LuaJIT finds only when it resolves names (labels, numbers of variables) or runs the
//! script are not checked.

mod expression;
mod lexer;

use std::fmt;

use expression::Shape;
use lexer::{Kind, Lexer, Token};

/// LuaJIT's maximum nesting depth.
const MAX_LEVELS: usize = 200;

/// A syntax error of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LuaFault {
    /// The line, from 1.
    line: usize,
    reason: String,
}

impl fmt::Display for LuaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// Checks a script. Precompiled scripts pass.
///
/// # Errors
/// The first line with a syntax error.
pub(super) fn check(script: &str) -> Result<(), LuaFault> {
    if script.starts_with('\x1b') {
        return Ok(());
    }

    let mut lexer = Lexer::new(script);
    let token = lexer.next()?;
    let mut parser = Parser {
        lexer,
        token,
        levels: 0,
        loops: 0,
        takes_more: true,
    };

    parser.block()?;

    if parser.token.kind == Kind::End {
        Ok(())
    } else {
        Err(parser.unexpected())
    }
}

/// A recursive descent parser of scripts.
#[derive(Debug)]
struct Parser<'a> {
    /// The source of tokens.
    lexer: Lexer<'a>,
    token: Token<'a>,
    /// The current nesting depth.
    levels: usize,
    /// The number of enclosing loops in the function.
    loops: usize,
    /// Whether the function is variadic (`...`).
    takes_more: bool,
}

impl<'a> Parser<'a> {
    /// Advances to the next token.
    fn advance(&mut self) -> Result<Token<'a>, LuaFault> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    /// Whether the current token is this keyword or sign.
    fn is(&self, text: &str) -> bool {
        matches!(self.token.kind, Kind::Keyword | Kind::Sign) && self.token.text == text
    }

    /// Consumes a keyword or sign if it is the current token.
    fn take(&mut self, text: &str) -> Result<bool, LuaFault> {
        let found = self.is(text);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Consumes a required keyword or sign.
    fn expect(&mut self, text: &str) -> Result<(), LuaFault> {
        if self.take(text)? {
            Ok(())
        } else {
            Err(self.fault(format!("{text:?} is missing")))
        }
    }

    /// Consumes a required name.
    fn name(&mut self) -> Result<(), LuaFault> {
        if self.token.kind != Kind::Name {
            return Err(self.fault("a name is missing"));
        }
        self.advance().map(drop)
    }

    /// An error before the current token.
    fn fault(&self, reason: impl fmt::Display) -> LuaFault {
        let place = match self.token.kind {
            Kind::End => "the end".to_owned(),
            Kind::Name | Kind::Keyword | Kind::Text | Kind::Number | Kind::Sign => {
                format!("{:?}", self.token.text.chars().take(40).collect::<String>())
            }
        };
        LuaFault {
            line: self.token.line,
            reason: format!("{reason} at {place}"),
        }
    }

    /// An unexpected token.
    fn unexpected(&self) -> LuaFault {
        self.fault("no Lua")
    }

    /// Enters a nesting level.
    fn enter(&mut self) -> Result<(), LuaFault> {
        self.levels += 1;
        if self.levels > MAX_LEVELS {
            Err(self.fault("it is nested too deeply"))
        } else {
            Ok(())
        }
    }

    /// Statements up to the token that ends their block.
    fn block(&mut self) -> Result<(), LuaFault> {
        self.enter()?;
        let ends = ["else", "elseif", "end", "until"];
        while self.token.kind != Kind::End && !ends.iter().any(|end| self.is(end)) {
            let is_last = self.is("return");
            self.statement()?;
            self.take(";")?;
            if is_last {
                break;
            }
        }
        self.levels -= 1;
        Ok(())
    }

    /// The body of a loop.
    fn looped(&mut self, end: &str) -> Result<(), LuaFault> {
        self.loops += 1;
        self.block()?;
        self.loops -= 1;
        self.expect(end)
    }

    fn statement(&mut self) -> Result<(), LuaFault> {
        if self.token.kind == Kind::Name && self.token.text == "goto" {
            self.advance()?;
            // Without a name after it, `goto` is a name itself.
            return if self.token.kind == Kind::Name {
                self.name()
            } else {
                self.call_or_assignment(Shape::Place)
            };
        }

        if !matches!(self.token.kind, Kind::Keyword | Kind::Sign) {
            return self.call_or_assignment_from_start();
        }

        match self.token.text {
            "if" => self.conditional(),
            "while" => {
                self.advance()?;
                self.expression(0)?;
                self.expect("do")?;
                self.looped("end")
            }
            "do" => {
                self.advance()?;
                self.block()?;
                self.expect("end")
            }
            "for" => self.for_loop(),
            "repeat" => {
                self.advance()?;
                self.looped("until")?;
                self.expression(0)
            }
            "function" => self.function_statement(),
            "local" => self.local(),
            "return" => {
                self.advance()?;
                let ends = ["else", "elseif", "end", "until", ";"];
                let is_empty = self.token.kind == Kind::End || ends.iter().any(|end| self.is(end));
                if is_empty { Ok(()) } else { self.expressions() }
            }
            "break" if self.loops == 0 => Err(self.fault("break outside of a loop")),
            "break" => self.advance().map(drop),
            ";" => Ok(()),
            "::" => {
                self.advance()?;
                self.name()?;
                self.expect("::")
            }
            _ => self.call_or_assignment_from_start(),
        }
    }

    /// `if … then … end`.
    fn conditional(&mut self) -> Result<(), LuaFault> {
        loop {
            self.advance()?;
            self.expression(0)?;
            self.expect("then")?;
            self.block()?;
            if !self.is("elseif") {
                break;
            }
        }
        if self.take("else")? {
            self.block()?;
        }
        self.expect("end")
    }

    /// `for … do … end`, numeric or generic.
    fn for_loop(&mut self) -> Result<(), LuaFault> {
        self.advance()?;
        self.name()?;

        if self.take("=")? {
            self.expression(0)?;
            self.expect(",")?;
            self.expression(0)?;
            if self.take(",")? {
                self.expression(0)?;
            }
        } else {
            while self.take(",")? {
                self.name()?;
            }
            self.expect("in")?;
            self.expressions()?;
        }

        self.expect("do")?;
        self.looped("end")
    }

    /// `function a.b:c(…) … end`.
    fn function_statement(&mut self) -> Result<(), LuaFault> {
        self.advance()?;
        self.name()?;
        while self.take(".")? {
            self.name()?;
        }
        if self.take(":")? {
            self.name()?;
        }
        self.function_body()
    }

    fn local(&mut self) -> Result<(), LuaFault> {
        self.advance()?;
        if self.take("function")? {
            self.name()?;
            return self.function_body();
        }
        self.name()?;
        while self.take(",")? {
            self.name()?;
        }
        if self.take("=")? {
            self.expressions()
        } else {
            Ok(())
        }
    }

    /// Parameters and statements of a function.
    fn function_body(&mut self) -> Result<(), LuaFault> {
        self.expect("(")?;
        let outer = (self.loops, self.takes_more);
        self.loops = 0;
        self.takes_more = false;

        if !self.is(")") {
            loop {
                if self.take("...")? {
                    self.takes_more = true;
                    break;
                }
                self.name()?;
                if !self.take(",")? {
                    break;
                }
            }
        }

        self.expect(")")?;
        self.block()?;
        (self.loops, self.takes_more) = outer;
        self.expect("end")
    }

    fn call_or_assignment_from_start(&mut self) -> Result<(), LuaFault> {
        let shape = self.suffixed()?;
        self.finish_statement(shape)
    }

    /// As [`Self::call_or_assignment_from_start`], after the first name.
    fn call_or_assignment(&mut self, first: Shape) -> Result<(), LuaFault> {
        let shape = self.suffixes(first)?;
        self.finish_statement(shape)
    }

    /// The rest of a statement after its first variable or call.
    fn finish_statement(&mut self, mut shape: Shape) -> Result<(), LuaFault> {
        if shape == Shape::Call {
            return Ok(());
        }
        while shape == Shape::Place && self.take(",")? {
            shape = self.suffixed()?;
        }
        if shape != Shape::Place {
            return Err(self.unexpected());
        }
        self.expect("=")?;
        self.expressions()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lua_that_luajit_accepts_passes() {
        for script in [
            "",
            "#!/usr/bin/lua\nlocal a = 1",
            "function envoy_on_request(handle)\n  handle:headers():add(\"a\", 'b\\n\\x41\\065\\z  c')\nend",
            "local t = { 1, a = 2; [\"b\"] = function(...) return select('#', ...) end, f{}, f'x', }",
            "for i = 1, 10, 2 do if i == 3 then break elseif i > 4 then goto on else x.y[1].z = i end ::on:: end",
            "for k, v in pairs(t) do repeat local z = k until z end",
            "while not (a and b or c) do a, b.c, d[1] = 1, 2 end return",
            "return -2 ^ -3 .. 'a' .. [[b\n]] .. [==[c]]]==], 0x1p4, 1e-5, .5, 3., 0xffULL, 2i, #t; -- done",
            "--[[ long\ncomment ]] --[=[ another ]=] local function f() return f() end; f() ; (f or g)();",
            "local goto_ = 1 goto = 2",
            "local ä = 1",
        ] {
            assert_eq!(check(script), Ok(()), "{script}");
        }
    }

    #[test]
    fn lua_errors_are_reported_with_their_line() {
        for (script, line) in [
            ("function f(\nend", 2),
            ("local a =\n", 2),
            ("a.b", 1),
            ("f() = 1", 1),
            ("if a then\n\nb()", 3),
            ("x = 'a\n'", 1),
            ("x = 'a\\q'", 1),
            ("x = [[a", 1),
            ("x = 12ab", 1),
            ("break", 1),
            ("function f() return ... end", 1),
            ("x = = 1", 1),
            ("return 1 x = 2", 1),
            ("x = a ! b", 1),
            ("handle:logInfo", 1),
            ("end", 1),
        ] {
            assert_eq!(
                check(script).map_err(|fault| fault.line),
                Err(line),
                "{script}"
            );
        }
    }

    #[test]
    fn nesting_is_limited_as_in_luajit() {
        assert!(
            check(&format!(
                "x = {}1{}",
                "(".repeat(10_000),
                ")".repeat(10_000)
            ))
            .is_err()
        );
        assert!(check(&"do ".repeat(10_000)).is_err());
        assert!(check(&format!("x = {}", "{".repeat(10_000))).is_err());
        assert_eq!(
            check(&format!("x = {}1{}", "(".repeat(150), ")".repeat(150))),
            Ok(())
        );
    }
}
