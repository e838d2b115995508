//! The remarks of one computation, bounded: for an input with many faults the first few are
//! listed, then their number.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of listed remarks per subject, which usually is one input.
const MAX_REMARKS_PER_SUBJECT: usize = 10;
/// Maximum number of subjects that are listed separately.
const MAX_SUBJECTS: usize = 100;

/// Remarks by subject.
#[derive(Debug, Default)]
pub(crate) struct RemarkList {
    kept: Vec<Arc<str>>,
    /// Number of remarks of each subject.
    counts: BTreeMap<Arc<str>, usize>,
    /// Number of remarks of further subjects.
    further: usize,
}

/// The subject of a remark: its text up to the first colon.
fn subject(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(subject, _)| subject)
}

impl RemarkList {
    /// Adds a remark.
    pub(crate) fn push(&mut self, text: Arc<str>) {
        let subject = subject(&text);
        if !self.counts.contains_key(subject) && self.counts.len() < MAX_SUBJECTS {
            self.counts.insert(Arc::from(subject), 0);
        }
        let count = self.counts.get_mut(subject).unwrap_or(&mut self.further);
        *count += 1;
        if *count <= MAX_REMARKS_PER_SUBJECT {
            self.kept.push(text);
        }
    }

    /// Adds the remarks of another list.
    pub(crate) fn extend(&mut self, mut other: Self) {
        for text in std::mem::take(&mut other.kept) {
            if let Some(count) = other.counts.get_mut(subject(&text)) {
                *count -= 1;
            } else {
                other.further = other.further.saturating_sub(1);
            }
            self.push(text);
        }
        for (subject, count) in other.counts {
            match self.counts.get_mut(&subject) {
                Some(own) => *own += count,
                None => self.further += count,
            }
        }
        self.further += other.further;
    }

    /// The remarks, followed by the number of those beyond the limits.
    pub(crate) fn into_texts(self) -> Vec<Arc<str>> {
        let more = |(subject, count): (&Arc<str>, &usize)| {
            let more = count
                .checked_sub(MAX_REMARKS_PER_SUBJECT)
                .filter(|more| *more > 0)?;
            Some(Arc::from(format!("{subject}: and {more} more")))
        };
        let further = self
            .further
            .checked_sub(MAX_REMARKS_PER_SUBJECT)
            .filter(|more| *more > 0);
        let further = further.map(|more| Arc::from(format!("and {more} more")));
        let more: Vec<Arc<str>> = self.counts.iter().filter_map(more).chain(further).collect();
        self.kept.into_iter().chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(object: &str, remarks: usize) -> RemarkList {
        let mut list = RemarkList::default();
        (0..remarks).for_each(|n| list.push(format!("{object}: fault {n}").into()));
        list
    }

    #[test]
    fn messages_about_one_object_are_limited_and_then_counted() {
        let mut all = list("filter big", 5_000);
        all.push("filter small: fault".into());
        let texts = all.into_texts();
        assert_eq!(texts.len(), MAX_REMARKS_PER_SUBJECT + 2);
        assert_eq!(
            texts[MAX_REMARKS_PER_SUBJECT].as_ref(),
            "filter small: fault"
        );
        assert_eq!(
            texts[MAX_REMARKS_PER_SUBJECT + 1].as_ref(),
            "filter big: and 4990 more"
        );
        assert_eq!(
            *list("a", 2).into_texts(),
            [Arc::from("a: fault 0"), Arc::from("a: fault 1")]
        );
    }

    #[test]
    fn omitted_remarks_of_joined_lists_are_summed() {
        let mut all = list("a", 8);
        all.extend(list("a", 30));
        assert_eq!(all.into_texts().last().unwrap().as_ref(), "a: and 28 more");
    }

    #[test]
    fn the_number_of_distinct_subjects_is_limited() {
        let mut all = RemarkList::default();
        (0..5_000).for_each(|n| all.push(format!("object {n}: fault").into()));
        let texts = all.into_texts();
        assert_eq!(texts.len(), MAX_SUBJECTS + MAX_REMARKS_PER_SUBJECT + 1);
        assert_eq!(texts.last().unwrap().as_ref(), "and 4890 more");
    }
}
