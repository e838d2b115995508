//! Validation and adaptation of parsed templates.
//!
//! The data differs from Go: methods of protos are fields here, so `GetX` becomes `X`, and
//! `GetValue` and `String` are removed. Functions must be known, and templates must not be
//! recursive.

use std::collections::{BTreeMap, BTreeSet};

use gotmpl::parse::{CommandNode, Expr, ListNode, Node, PipeNode, SmolStr};

/// The maximum number of nodes in a template after expanding all calls.
const MAX_NODES: usize = 20_000;

/// Templates by name.
pub(super) type Trees = BTreeMap<String, ListNode>;

/// Validates and adapts templates; `main` is the template to render.
///
/// # Errors
/// When a template calls an unknown function or template, is recursive, or expands to too many
/// nodes.
pub(super) fn adapt(
    trees: &mut Trees,
    main: &str,
    known: &dyn Fn(&str) -> bool,
) -> Result<(), String> {
    let mut calls = BTreeMap::new();

    for (name, tree) in trees.iter_mut() {
        let mut walk = Walk {
            known,
            nodes: 0,
            called: Vec::new(),
        };
        walk.list(tree)?;
        calls.insert(name.clone(), (walk.nodes, walk.called));
    }

    let nodes = written_out(&calls, main, &mut BTreeSet::new())?;
    if nodes > MAX_NODES {
        Err(format!(
            "it has {nodes} nodes including all called templates; the maximum is {MAX_NODES}"
        ))
    } else {
        Ok(())
    }
}

/// The number of nodes in a template after expanding all calls.
fn written_out(
    calls: &BTreeMap<String, (usize, Vec<String>)>,
    name: &str,
    above: &mut BTreeSet<String>,
) -> Result<usize, String> {
    let Some((own, called)) = calls.get(name) else {
        return Err(format!("unknown template {name:?}"));
    };
    if !above.insert(name.to_owned()) {
        return Err(format!("template {name:?} calls itself"));
    }
    let mut sum = *own;
    for other in called {
        sum = sum.saturating_add(written_out(calls, other, above)?);
        if sum > MAX_NODES {
            break;
        }
    }
    above.remove(name);
    Ok(sum)
}

/// The traversal of one template.
struct Walk<'a> {
    /// Whether a function with a name exists.
    known: &'a dyn Fn(&str) -> bool,
    /// The number of visited nodes.
    nodes: usize,
    /// The names of the called templates.
    called: Vec<String>,
}

impl Walk<'_> {
    /// Visits a list of nodes.
    fn list(&mut self, list: &mut ListNode) -> Result<(), String> {
        list.nodes.iter_mut().try_for_each(|node| self.node(node))
    }

    /// Visits a node.
    fn node(&mut self, node: &mut Node) -> Result<(), String> {
        self.nodes += 1;

        match node {
            Node::List(list) => self.list(list),
            Node::Text(_) | Node::Break(_) | Node::Continue(_) => Ok(()),
            Node::Action(action) => self.pipe(&mut action.pipe),
            Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
                self.pipe(&mut branch.pipe)?;
                self.list(&mut branch.body)?;
                branch
                    .else_body
                    .iter_mut()
                    .try_for_each(|list| self.list(list))
            }
            Node::Template(call) => {
                self.called.push(call.name.to_string());
                call.pipe.iter_mut().try_for_each(|pipe| self.pipe(pipe))
            }
            Node::Define(define) => self.list(&mut define.body),
        }
    }

    /// Visits a pipeline.
    fn pipe(&mut self, pipe: &mut PipeNode) -> Result<(), String> {
        pipe.commands
            .iter_mut()
            .try_for_each(|command: &mut CommandNode| {
                self.nodes += 1;
                command.args.iter_mut().try_for_each(|expr| self.expr(expr))
            })
    }

    /// Visits an expression.
    fn expr(&mut self, expr: &mut Expr) -> Result<(), String> {
        match expr {
            Expr::Dot(_) | Expr::String(..) | Expr::Number(..) | Expr::Bool(..) | Expr::Nil(_) => {
                Ok(())
            }
            Expr::Field(_, fields) | Expr::Variable(_, _, fields) => {
                without_methods(fields);
                Ok(())
            }
            Expr::Identifier(pos, name) if !(self.known)(name) => {
                Err(format!("line {}: unknown function {name:?}", pos.line))
            }
            Expr::Identifier(..) => Ok(()),
            Expr::Pipe(_, pipe) => self.pipe(pipe),
            Expr::Chain(_, inner, fields) => {
                without_methods(fields);
                self.expr(inner)
            }
        }
    }
}

/// Converts method calls to fields. The chart's values have no methods and are not changed.
fn without_methods(fields: &mut Vec<SmolStr>) {
    if fields.first().is_some_and(|first| first == "Values") {
        return;
    }
    fields.retain(|field| field != "GetValue" && field != "String");
    for field in fields {
        let bare = field
            .strip_prefix("Get")
            .filter(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()));
        if let Some(bare) = bare.map(SmolStr::from) {
            *field = bare;
        }
    }
}
