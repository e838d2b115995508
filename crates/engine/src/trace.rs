//! Traces while they are recorded: what the computations in progress have read.

use std::any::Any;
use std::sync::Arc;

use super::deps::Dep;
use super::ids::{AttrId, ValueId};
use super::remark_list::RemarkList;
use navarch_tables::hash::KeyedSet;

/// The traces of the computations in progress, each called by the one before.
pub(crate) struct Traces<N>(Vec<Trace<N>>);

/// The trace being recorded for one computation.
pub(crate) struct Trace<N> {
    /// Dependencies in order of reading.
    pub(crate) deps: Vec<Dep>,
    /// The same dependencies as a set.
    seen: KeyedSet<Dep>,
    /// Attributes in order of reading.
    pub(crate) attrs: Vec<(AttrId, ValueId)>,
    seen_attrs: KeyedSet<AttrId>,
    /// Remarks on inputs that are ignored.
    pub(crate) remarks: RemarkList,
    pub(crate) notices: Vec<N>,
}

/// A computation that panicked without a fallback value.
pub(crate) struct Failure<N> {
    pub(crate) panic: Box<dyn Any + Send>,
    /// The reads until then. They belong to the trace of the caller, which fails too.
    pub(crate) trace: Trace<N>,
}

impl<N> Traces<N> {
    /// Begins the trace of a computation; returns the number of computations in progress, this one
    /// included.
    pub(crate) fn begin(&mut self) -> usize {
        self.0.push(Trace::default());
        self.0.len()
    }

    /// The number of computations in progress.
    pub(crate) fn depth(&self) -> usize {
        self.0.len()
    }

    /// Ends the trace of the computation that was begun at this depth.
    pub(crate) fn end(&mut self, depth: usize) -> Trace<N> {
        // A panic below may have left inner traces on the stack: their reads belong to this one,
        // too.
        while self.0.len() > depth {
            let inner = self.0.pop().unwrap_or_default();
            if let Some(outer) = self.0.last_mut() {
                outer.absorb(inner);
            }
        }
        self.0.pop().unwrap_or_default()
    }

    /// The trace of the innermost computation; `None` outside of computations.
    pub(crate) fn current(&mut self) -> Option<&mut Trace<N>> {
        self.0.last_mut()
    }
}

impl<N> Trace<N> {
    pub(crate) fn read(&mut self, dep: Dep) {
        if self.seen.insert(dep) {
            self.deps.push(dep);
        }
    }

    /// Records the read of an attribute and its value.
    pub(crate) fn read_attribute(&mut self, attr: AttrId, value: ValueId) {
        if self.seen_attrs.insert(attr) {
            self.attrs.push((attr, value));
        }
    }

    /// Puts attributes before all others, if the result depends on their values anyway.
    pub(crate) fn prepend_attributes(&mut self, attrs: &[(AttrId, ValueId)]) {
        let later = std::mem::replace(&mut self.attrs, attrs.to_vec());
        self.seen_attrs = attrs.iter().map(|(attr, _)| *attr).collect();
        for (attr, value) in later {
            self.read_attribute(attr, value);
        }
    }

    /// Merges another trace, as when its computation failed inside this one.
    pub(crate) fn absorb(&mut self, other: Self) {
        for dep in other.deps {
            self.read(dep);
        }
        for (attr, value) in other.attrs {
            self.read_attribute(attr, value);
        }
        self.remarks.extend(other.remarks);
        self.notices.extend(other.notices);
    }
}

impl<N> Failure<N> {
    /// An internal failure of the engine, before any read.
    pub(crate) fn new(message: &'static str) -> Self {
        Self {
            panic: Box::new(message),
            trace: Trace::default(),
        }
    }

    /// What the computation panicked with, if that is a text.
    pub(crate) fn text(&self) -> Arc<str> {
        panic_text(&*self.panic)
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Arc::from(text.unwrap_or("panic without a message"))
}

impl<N> Default for Traces<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N> Default for Trace<N> {
    fn default() -> Self {
        Self {
            deps: Vec::new(),
            seen: KeyedSet::default(),
            attrs: Vec::new(),
            seen_attrs: KeyedSet::default(),
            remarks: RemarkList::default(),
            notices: Vec::new(),
        }
    }
}
