//! Errors with their sources in one line.

use std::error::Error;

/// An error with its chain of sources. Text that an error repeats from its source is written once.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::chain;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    #[test]
    fn an_error_chain_repeats_no_message() {
        let link = |text, source| Link { text, source };
        let last = link("no route", None);
        let middle = link("cannot connect: no route", Some(Box::new(last)));
        assert_eq!(
            chain(&link("not sent", Some(Box::new(middle)))),
            "not sent: cannot connect: no route"
        );
    }
}
