//! What an engine computes from, as types.

use std::hash::Hash;

use super::notice::Notice;

/// The types of an engine's inputs and outputs. A type without values that only names the others is
/// enough.
pub trait Inputs: Sized + 'static {
    /// All inputs at one time. A change makes a new snapshot, which should share what is unchanged.
    type Snapshot;

    /// The key of one part of a snapshot that can be read, and that changes as a whole.
    type Fact: Clone + Eq + Ord + Hash;

    /// For whom results are computed, with its attributes.
    type Subscriber;

    /// A property of subscribers that computations can read. The more specific it is, the more
    /// subscribers have the same value, and thus share results.
    type Attribute: Clone + Eq + Hash;

    /// The value of an attribute.
    type AttributeValue: Clone + Eq + Hash;

    /// What a subscription is about. A subscriber has at most one subscription to each topic; after
    /// a change of its attributes the lower topics are updated first.
    type Topic: Copy + Ord + Hash;

    /// The value of a query that can be subscribed to.
    type Published: PartialEq + Send + Sync + 'static;

    /// What computations count beside their results; `()` if nothing.
    type Notice: Notice;

    /// What computations use beside the inputs, and never changes; `()` if nothing.
    type Environment: ?Sized;

    /// The value of an attribute of a subscriber. Must be the same in each call.
    fn attribute(
        subscriber: &Self::Subscriber,
        attribute: &Self::Attribute,
    ) -> Self::AttributeValue;
}
