//! One copy of texts that many objects repeat: namespaces, labels, nodes, names of ports.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashSet;

/// Below this many texts nothing is looked over.
const FEW: usize = 1024;

/// Texts that were seen and are still in use. Look-ups cost a hash; now and then all are looked over for those that nobody
/// uses any more, at a cost per text that does not grow with their number.
#[derive(Clone, Default)]
pub struct SharedTexts {
    /// The texts.
    known: FxHashSet<Arc<str>>,
    /// How many there may be until they are looked over.
    limit: usize,
}

impl fmt::Debug for SharedTexts {
    /// Which texts are known tells nothing of whoever has them: it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedTexts")
    }
}

impl SharedTexts {
    /// Puts the known copy of a text in its place; what is not known is from now on.
    pub fn share(&mut self, text: &mut Arc<str>) {
        if let Some(known) = self.known.get(text) {
            *text = known.clone();
            return;
        }
        if self.known.len() >= self.limit {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.limit = FEW.max(self.known.len() * 2);
        }
        self.known.insert(text.clone());
    }
}

/// What has texts that other objects may repeat.
pub trait HasTexts {
    /// Has equal texts be one with those of other objects.
    fn share(&mut self, texts: &mut SharedTexts);
}

impl HasTexts for Arc<str> {
    fn share(&mut self, texts: &mut SharedTexts) {
        texts.share(self);
    }
}

impl<T: HasTexts> HasTexts for Option<T> {
    fn share(&mut self, texts: &mut SharedTexts) {
        if let Some(inner) = self {
            inner.share(texts);
        }
    }
}

impl<T: HasTexts> HasTexts for Vec<T> {
    fn share(&mut self, texts: &mut SharedTexts) {
        // What was read grew by doubling; what is kept needs no room for more.
        self.shrink_to_fit();
        for item in self {
            item.share(texts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_nobody_uses_are_forgotten() {
        let mut texts = SharedTexts::default();
        let mut kept: Arc<str> = "kept".into();
        texts.share(&mut kept);
        for number in 0..10_000 {
            texts.share(&mut Arc::from(number.to_string()));
        }
        assert!(texts.known.len() <= FEW, "{}", texts.known.len());
        let mut again: Arc<str> = "kept".into();
        texts.share(&mut again);
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
