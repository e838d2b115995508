//! The numbers of subscribers, results, queries, facts, attributes and their values.

/// The id of a subscriber within one engine; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriberId(u64);

impl SubscriberId {
    /// The subscriber of computations for none. It has no attributes.
    pub(crate) const NONE: Self = Self(u64::MAX);

    /// The id with this number, for a subscriber that the engine has assigned it to.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        Self(number)
    }

    /// The number that [`SubscriberId::of`] takes.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The id of a kept result. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u64);

/// The number that an [`Interner`](crate::interner::Interner) assigns to an entry.
pub(crate) trait EntryId: Copy + Ord {
    /// The id of the entry at this index of its table.
    fn new(index: usize) -> Self;

    /// The index in its table.
    fn index(self) -> usize;
}

/// Defines the ids of tables that differ only in what they count.
macro_rules! entry_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub(crate) usize);

        impl EntryId for $name {
            #[inline]
            fn new(index: usize) -> Self {
                Self(index)
            }

            #[inline]
            fn index(self) -> usize {
                self.0
            }
        }
    )*};
}

entry_ids! {
    /// The id of an interned query key.
    QueryId;
    /// The id of an interned fact key.
    FactId;
    /// The id of an interned attribute.
    AttrId;
    /// The id of an interned value of an attribute.
    ValueId;
}
