//! Expressions of a Lua script.

use super::lexer::Kind;
use super::{LuaFault, Parser};

/// The binding power of `not`, `-` and `#`.
const UNARY: u8 = 8;

/// The kind of an expression that starts with a name or parenthesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A variable that can be assigned to.
    Place,
    /// A call, which is also a statement.
    Call,
    Value,
}

impl Parser<'_> {
    /// One or more expressions.
    pub(super) fn expressions(&mut self) -> Result<(), LuaFault> {
        self.expression(0)?;
        while self.take(",")? {
            self.expression(0)?;
        }
        Ok(())
    }

    /// An expression of operators that bind more strongly than `limit`.
    pub(super) fn expression(&mut self, limit: u8) -> Result<(), LuaFault> {
        self.enter()?;
        if self.is("not") || self.is("-") || self.is("#") {
            self.advance()?;
            self.expression(UNARY)?;
        } else {
            self.simple()?;
        }
        while let Some((_, right)) = self.binding().filter(|(left, _)| *left > limit) {
            self.advance()?;
            self.expression(right)?;
        }
        self.levels -= 1;
        Ok(())
    }

    /// The left and right binding power of the token, if it is an operator.
    fn binding(&self) -> Option<(u8, u8)> {
        if !matches!(self.token.kind, Kind::Keyword | Kind::Sign) {
            return None;
        }
        Some(match self.token.text {
            "+" | "-" => (6, 6),
            "*" | "/" | "%" => (7, 7),
            "^" => (10, 9),
            ".." => (5, 4),
            "==" | "~=" | "<" | "<=" | ">" | ">=" => (3, 3),
            "and" => (2, 2),
            "or" => (1, 1),
            _ => return None,
        })
    }

    /// An expression without operators.
    fn simple(&mut self) -> Result<(), LuaFault> {
        match self.token.kind {
            Kind::Number | Kind::Text => return self.advance().map(drop),
            Kind::Name | Kind::End => return self.suffixed().map(drop),
            Kind::Keyword | Kind::Sign => {}
        }
        match self.token.text {
            "nil" | "true" | "false" => self.advance().map(drop),
            "..." if self.takes_more => self.advance().map(drop),
            "..." => Err(self.fault("the function takes no \"...\"")),
            "{" => self.table(),
            "function" => {
                self.advance()?;
                self.function_body()
            }
            _ => self.suffixed().map(drop),
        }
    }

    /// A name or parenthesized expression with its suffixes.
    pub(super) fn suffixed(&mut self) -> Result<Shape, LuaFault> {
        if self.token.kind == Kind::Name {
            self.name()?;
            return self.suffixes(Shape::Place);
        }
        if !self.is("(") {
            return Err(self.unexpected());
        }
        self.advance()?;
        self.expression(0)?;
        self.expect(")")?;
        self.suffixes(Shape::Value)
    }

    /// Suffixes: members and calls.
    pub(super) fn suffixes(&mut self, mut shape: Shape) -> Result<Shape, LuaFault> {
        loop {
            if self.take(".")? {
                self.name()?;
                shape = Shape::Place;
            } else if self.take("[")? {
                self.expression(0)?;
                self.expect("]")?;
                shape = Shape::Place;
            } else if self.take(":")? {
                self.name()?;
                self.arguments()?;
                shape = Shape::Call;
            } else if self.token.kind == Kind::Text || self.is("(") || self.is("{") {
                self.arguments()?;
                shape = Shape::Call;
            } else {
                return Ok(shape);
            }
        }
    }

    /// The arguments of a call.
    fn arguments(&mut self) -> Result<(), LuaFault> {
        if self.token.kind == Kind::Text {
            return self.advance().map(drop);
        }
        if self.is("{") {
            return self.table();
        }
        self.expect("(")?;
        if !self.is(")") {
            self.expressions()?;
        }
        self.expect(")")
    }

    fn table(&mut self) -> Result<(), LuaFault> {
        self.expect("{")?;
        while !self.is("}") {
            self.field()?;
            if !self.take(",")? && !self.take(";")? {
                break;
            }
        }
        self.expect("}")
    }

    /// One field of a table.
    fn field(&mut self) -> Result<(), LuaFault> {
        if self.take("[")? {
            self.expression(0)?;
            self.expect("]")?;
            self.expect("=")?;
        } else if self.token.kind == Kind::Name && self.lexer.is_assigned() {
            self.name()?;
            self.expect("=")?;
        }
        self.expression(0)
    }
}
