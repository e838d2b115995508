//! Parameters of messages, and how Go's verbs write them.

use navarch_base::go_text::write_quoted;

/// A parameter of a message.
#[derive(Clone, Debug)]
pub(crate) enum Parameter {
    Text(String),
    /// A list of texts or numbers.
    List(Vec<String>),
}

impl From<&str> for Parameter {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Parameter {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for Parameter {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Parameter {
    fn from(number: usize) -> Self {
        Self::Text(number.to_string())
    }
}

impl From<u32> for Parameter {
    fn from(number: u32) -> Self {
        Self::Text(number.to_string())
    }
}

impl From<i32> for Parameter {
    fn from(number: i32) -> Self {
        Self::Text(number.to_string())
    }
}

impl<T: ToString> From<Vec<T>> for Parameter {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.iter().map(ToString::to_string).collect())
    }
}

/// Lists the parameters of a message.
macro_rules! parameters {
    ($($value:expr),* $(,)?) => {
        &[$($crate::parameters::Parameter::from($value)),*]
    };
}
pub(crate) use parameters;

/// Puts parameters where the verbs of a template are.
pub(crate) fn fill(template: &str, parameters: &[Parameter]) -> String {
    let mut out = String::with_capacity(template.len() + 32);
    let mut parameters = parameters.iter();
    let mut signs = template.chars();
    while let Some(sign) = signs.next() {
        if sign != '%' {
            out.push(sign);
            continue;
        }

        let verb = signs.next();
        match (verb, parameters.next()) {
            (Some('q'), Some(Parameter::Text(text))) => write_quoted(&mut out, text),
            (Some(_), Some(Parameter::Text(text))) => out.push_str(text),
            (verb, Some(Parameter::List(items))) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(' ');
                    }
                    if verb == Some('q') {
                        write_quoted(&mut out, item)
                    } else {
                        out.push_str(item)
                    }
                }
                out.push(']');
            }
            (_, _) => {}
        }
    }

    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_write_texts_and_lists() {
        let filled = fill(
            "%s is %q of %v, not %d",
            parameters!["a", "b\"c", vec![80, 443], 7_u32],
        );
        assert_eq!(filled, "a is \"b\\\"c\" of [80 443], not 7");
        assert_eq!(fill("%q", parameters![vec!["a", "b"]]), "[\"a\" \"b\"]");
    }
}
