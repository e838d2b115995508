//! Shrinks a failing schedule: drops events as long as the simulation still fails.

/// The smallest subset that was found of the `all` first indices for which `fails` is true, by
/// delta debugging: ever smaller parts are left out, until no single event can be. `fails` must be
/// true of all of them.
pub fn shrink(all: usize, mut fails: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..all).collect();
    let mut parts = 2;

    while !kept.is_empty() {
        let size = kept.len().div_ceil(parts);
        let smaller = (0..kept.len()).step_by(size).find_map(|begin| {
            let end = (begin + size).min(kept.len());
            let rest: Vec<usize> = kept
                .iter()
                .enumerate()
                .filter(|(position, _)| !(begin..end).contains(position))
                .map(|(_, index)| *index)
                .collect();
            fails(&rest).then_some(rest)
        });

        match smaller {
            Some(rest) => {
                kept = rest;
                parts = parts.saturating_sub(1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(kept.len()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_failure_needs_is_kept() {
        let mut runs = 0;
        let kept = shrink(60, |indices| {
            runs += 1;
            indices.contains(&7) && indices.contains(&41)
        });
        assert_eq!(kept, [7, 41]);
        assert!(runs < 120, "{runs} runs");
    }

    #[test]
    fn a_failure_that_needs_no_event_keeps_none() {
        assert!(shrink(8, |_| true).is_empty());
    }
}
