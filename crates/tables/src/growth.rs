//! Growth of vectors that are held for long.

/// Appends an item. A vector that doubles leaves up to half of its capacity unused; this one grows
/// by an eighth, so that all growth together copies each item about eight times.
pub fn push_tight<T>(items: &mut Vec<T>, item: T) {
    if items.len() == items.capacity() {
        items.reserve_exact(items.len() / 8 + 4);
    }
    items.push(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_idle() {
        let mut items = Vec::new();
        for number in 0..10_000 {
            push_tight(&mut items, number);
            assert!(
                items.capacity() <= items.len() + items.len() / 8 + 4,
                "{} for {number}",
                items.capacity()
            );
        }
        assert!(items.iter().copied().eq(0..10_000));
    }
}
